package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// node is a file or a directory of a disk that may lose power: what is synced stays, of the rest
// anything may.
type node struct {
	data   []byte
	synced int // bytes of data on the disk
	// entries are a directory's, durable those on the disk.
	entries, durable map[string]*node
}

func newNode(dir bool) *node {
	if !dir {
		return &node{}
	}
	return &node{entries: map[string]*node{}, durable: map[string]*node{}}
}

// disk applies each change to the real filesystem and to its picture of the disk, and then calls
// changed.
type disk struct {
	osFilesystem
	root    string
	top     *node
	changed func(change string)
}

// at returns the directory and the name of a path.
func (d *disk) at(path string) (*node, string) {
	dir, name := filepath.Split(path)
	if filepath.Clean(dir) == d.root {
		return d.top, name
	}
	return d.top.entries[filepath.Base(dir)], name
}

func (d *disk) Mkdir(path string) error {
	dir, name := d.at(path)
	dir.entries[name] = newNode(true)
	err := d.osFilesystem.Mkdir(path)
	d.changed("mkdir " + name)
	return err
}

func (d *disk) Create(path string) (writeFile, error) {
	dir, name := d.at(path)
	dir.entries[name] = newNode(false)
	f, err := d.osFilesystem.Create(path)
	d.changed("create " + name)
	return &diskFile{f, dir.entries[name], name, d}, err
}

func (d *disk) Rename(from, to string) error {
	dir, old := d.at(from)
	target, name := d.at(to)
	target.entries[name] = dir.entries[old]
	delete(dir.entries, old)
	err := d.osFilesystem.Rename(from, to)
	d.changed("rename " + old + " to " + name)
	return err
}

func (d *disk) RemoveAll(path string) error {
	dir, name := d.at(path)
	if n := dir.entries[name]; n != nil && n.entries != nil {
		for _, child := range slices.Sorted(maps.Keys(n.entries)) {
			delete(n.entries, child)
			d.changed("remove " + name + "/" + child)
		}
	}
	delete(dir.entries, name)
	err := d.osFilesystem.RemoveAll(path)
	d.changed("remove " + name)
	return err
}

func (d *disk) SyncDir(path string) error {
	n := d.top
	if path != d.root {
		dir, name := d.at(path)
		n = dir.entries[name]
	}
	n.durable = maps.Clone(n.entries)
	d.changed("sync " + filepath.Base(path))
	return d.osFilesystem.SyncDir(path)
}

type diskFile struct {
	writeFile
	n    *node
	name string
	d    *disk
}

func (f *diskFile) Write(p []byte) (int, error) {
	f.n.data = append(f.n.data, p...)
	n, err := f.writeFile.Write(p)
	f.d.changed("write " + f.name)
	return n, err
}

func (f *diskFile) Sync() error {
	f.n.synced = len(f.n.data)
	err := f.writeFile.Sync()
	f.d.changed("sync " + f.name)
	return err
}

// survivor says what of the unsynced outlived the loss of power.
type survivor struct{ top, below, data bool }

// image writes what is left of the disk to a new directory.
func (d *disk) image(t *testing.T, s survivor) string {
	path := t.TempDir()
	pick := func(n *node, current bool) map[string]*node {
		if current {
			return n.entries
		}
		return n.durable
	}
	for name, dir := range pick(d.top, s.top) {
		require.NoError(t, os.Mkdir(filepath.Join(path, name), 0o755))
		for child, file := range pick(dir, s.below) {
			data := slices.Clone(file.data)
			if !s.data {
				clear(data[file.synced:]) // the length is there, the content is not
			}
			require.NoError(t, os.WriteFile(filepath.Join(path, name, child), data, 0o644))
		}
	}
	return path
}

func TestALossOfPowerAtAnyPointKeepsACheckpoint(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{Keep: 1})
	fs := &disk{root: d.Path(), top: newNode(true), changed: func(string) {}}
	d.fs = fs
	require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}))
	points, second := 0, false
	fs.changed = func(change string) {
		for bits := range 8 {
			s := survivor{bits&1 != 0, bits&2 != 0, bits&4 != 0}
			what := fmt.Sprintf("%s, %+v", change, s)
			left, err := OpenDirectory(fs.image(t, s), Options{})
			require.NoError(t, err)
			steps, err := left.Steps()
			require.NoError(t, err)
			require.NotEmpty(t, steps, what)
			for _, step := range steps { // each one that shows is whole
				c, err := left.Open(step)
				require.NoError(t, err, what)
				require.NoError(t, c.Verify(ctx), what)
				requireNumbers(t, c, float32(step))
				require.NoError(t, c.Close())
				second = second || step == 2
			}
		}
		points++
	}
	require.NoError(t, d.Save(ctx, 2, numbers(2), SaveOptions{}))
	require.Greater(t, points, 10)
	require.True(t, second)
	// Once Save has returned, nothing unsynced is needed.
	left, err := OpenDirectory(fs.image(t, survivor{}), Options{})
	require.NoError(t, err)
	requireNumbers(t, latest(t, left), 2)
}
