package storage

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// node is a file or a folder of a disk that may lose power: what is synced stays, of the rest anything
// may.
type node struct {
	data string // of a file that is synced
	// entries are a folder's, durable those on the disk.
	entries, durable map[string]*node
}

func folderNode() *node { return &node{entries: map[string]*node{}, durable: map[string]*node{}} }

// disk is the picture of a disk that the changes of a folder make.
type disk struct {
	root string
	top  *node
}

// at returns the folder of a path, and the name in it.
func (d *disk) at(path string) (*node, string) {
	if path == d.root {
		return nil, ""
	}
	dir, name := filepath.Split(path)
	if dir = filepath.Clean(dir); dir == d.root {
		return d.top, name
	}
	above, folder := d.at(dir)
	return above.entries[folder], name
}

func (d *disk) did(change, path, from string) {
	in, name := d.at(path)
	switch change {
	case "mkdir":
		in.entries[name] = folderNode()
	case "create":
		in.entries[name] = &node{data: "rubbish"}
	case "sync file":
		data, _ := os.ReadFile(path)
		in.entries[name].data = string(data)
	case "rename", "link":
		of, old := d.at(from)
		in.entries[name] = of.entries[old]
		if change == "rename" {
			delete(of.entries, old)
		}
	case "remove":
		delete(in.entries, name)
	case "sync":
		n := d.top
		if in != nil {
			n = in.entries[name]
		}
		n.durable = maps.Clone(n.entries)
	}
}

// image is a folder of what is left of the disk: the entries as they are now or as they were synced, at
// the top and below it.
func (d *disk) image(t *testing.T, nowAbove, nowBelow bool) Store {
	dir := t.TempDir()
	var write func(n *node, path string, now bool)
	write = func(n *node, path string, now bool) {
		entries := n.durable
		if now {
			entries = n.entries
		}
		for name, child := range entries {
			to := filepath.Join(path, name)
			if child.entries == nil {
				require.NoError(t, os.WriteFile(to, []byte(child.data), 0o644))
				continue
			}
			require.NoError(t, os.Mkdir(to, 0o755))
			write(child, to, nowBelow)
		}
	}
	write(d.top, dir, nowAbove)
	s, err := Directory(dir)
	require.NoError(t, err)
	return s
}

// TestALossOfPowerLeavesWholeObjects simulates a power loss after each change to the file system.
// Objects are complete or absent, and the effect of a completed call is durable.
func TestALossOfPowerLeavesWholeObjects(t *testing.T) {
	ctx := context.Background()
	root := t.TempDir()
	d := &disk{root: root, top: folderNode()}
	s := &directory{root: root}
	get := func(s Store, name string) string {
		data, err := ReadAll(ctx, s, name, 100)
		if err != nil {
			require.ErrorIs(t, err, ErrNotExist)
			return ""
		}
		return string(data)
	}
	points := 0
	was := map[string]string{}
	do := func(name, want string, call func() error) {
		s.onChange = func(change, path, from string) {
			d.did(change, path, from)
			for bits := range 4 {
				left := d.image(t, bits&1 != 0, bits&2 != 0)
				for other, before := range was {
					allowed := []string{before}
					if other == name {
						allowed = append(allowed, want)
					}
					require.Contains(t, allowed, get(left, other), fmt.Sprint(change, " ", path, bits))
				}
			}
			points++
		}
		if _, ok := was[name]; !ok {
			was[name] = ""
		}
		require.NoError(t, call())
		require.Equal(t, want, get(d.image(t, false, false), name), "nothing that was not synced is needed")
		was[name] = want
	}
	put := func(name, text string, opts PutOptions) {
		do(name, text, func() error { return PutBytes(ctx, s, name, []byte(text), opts) })
	}
	put("a", "one", PutOptions{})
	put("a", "two", PutOptions{})
	put("step/save/b", "one", PutOptions{})
	put("step/c", "one", PutOptions{IfAbsent: true})
	do("step/c", "", func() error { return s.Remove(ctx, "step/c") })
	do("step/save/b", "", func() error { return s.Remove(ctx, "step/save/b") })
	put("a", "three", PutOptions{})
	require.Greater(t, points, 25)
}

// If a second file cannot be created, as on a full disk, a volatile object is overwritten in place,
// but never through a symbolic link.
func TestAVolatileObjectIsWrittenOverWhereThereIsNoRoom(t *testing.T) {
	root := t.TempDir()
	s := &directory{root: root}
	volatile := PutOptions{Volatile: true}
	put := func(name, text string) error { return PutBytes(t.Context(), s, name, []byte(text), volatile) }
	require.NoError(t, put("a/sign", "the longer one"))
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("of another program"), 0o644))
	require.NoError(t, os.Symlink(victim, filepath.Join(root, "a", "link")))
	s.onChange = func(change, path, _ string) {
		require.NotContains(t, change, "sync", "it is not brought to the disk")
		if change == "create" {
			require.NoError(t, os.Remove(path))
		}
	}
	require.NoError(t, put("a/sign", "another"))
	data, err := ReadAll(t.Context(), s, "a/sign", 100)
	require.NoError(t, err)
	require.Equal(t, "another", string(data))
	require.Error(t, put("a/new", "x"), "there is nothing to write over")
	require.Error(t, put("a/link", "x"))
	require.Error(t, PutBytes(t.Context(), s, "a/sign", nil, PutOptions{Volatile: true, IfAbsent: true}))
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "of another program", string(text))
}
