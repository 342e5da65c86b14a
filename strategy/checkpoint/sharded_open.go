package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/storage"
)

// readSmall reads a manifest.
func readSmall(ctx context.Context, s storage.Store, name string) ([]byte, error) {
	data, err := storage.ReadAll(ctx, s, name, maxManifest)
	if err != nil && ctx.Err() == nil && !errors.Is(err, storage.ErrNotExist) {
		return nil, unreadable(s.String()+"/"+name, err)
	}
	return data, err
}

// openSharded opens a checkpoint in shards, whose manifest was read.
func openSharded(ctx context.Context, s storage.Store, step int64, data []byte) (*Checkpoint, error) {
	path := s.String() + "/" + manifestName(step)
	m, err := parseSharded(data)
	if later := (*VersionError)(nil); errors.As(err, &later) {
		later.File = path
		return nil, later
	}
	if err == nil && m.Step != step {
		err = malformed("it is of step %d", m.Step)
	}
	if err != nil {
		return nil, &CorruptError{File: path, Reason: "no manifest", Err: err}
	}
	c := &Checkpoint{path: path, sharded: m, step: m.Step, metadata: m.Metadata, objects: []*object{}}
	for i, v := range m.Variables {
		info := v.info()
		of := variable{Info: info, bytes: int64(info.Shape.ByteSize()), element: int64(v.DType.Bits() / 8)}
		c.order = append(c.order, i)
		c.variables = append(c.variables, of)
	}
	parts := make([]*partManifest, len(m.Hosts))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for host := range m.Hosts {
		group.Go(func() (err error) {
			parts[host], err = c.readPart(within, s, host)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for host, p := range parts {
		name := shardsName(step, m.Save, host)
		c.objects = append(c.objects, &object{name: s.String() + "/" + name, size: p.Bytes,
			open: func(ctx context.Context) (storage.Object, error) { return s.Open(ctx, name) }})
		for _, r := range p.Regions {
			if r.Variable < 0 || r.Variable >= len(c.variables) {
				return nil, &CorruptError{File: path, Reason: fmt.Sprintf("part %d has variable %d of %d", host, r.Variable, len(c.variables))}
			}
			v := &c.variables[r.Variable]
			g, err := r.regionOf(host, v, p.Bytes)
			if err != nil {
				return nil, &CorruptError{File: s.String() + "/" + partName(step, m.Save, host), Variable: v.Path, Reason: "no part", Err: err}
			}
			v.regions = append(v.regions, g)
		}
	}
	for i := range c.variables {
		if err := c.variables[i].covered(); err != nil {
			return nil, &CorruptError{File: path, Variable: c.variables[i].Path, Reason: "its parts do not make it up", Err: err}
		}
	}
	return c, nil
}

// openShardedHere opens a checkpoint in shards of a directory.
func openShardedHere(dir string, data []byte) (*Checkpoint, error) {
	dir = filepath.Clean(dir)
	step, ok := parseStep(filepath.Base(dir))
	if !ok {
		return nil, &CorruptError{File: filepath.Join(dir, manifestFile), Reason: "the directory of a checkpoint in shards has the name of its step",
			Err: malformed("%s is none", filepath.Base(dir))}
	}
	s, err := storage.Directory(filepath.Dir(dir))
	if err != nil {
		return nil, doing("open", "", err)
	}
	return openSharded(context.Background(), s, step, data)
}

// readPart reads the manifest of a host's part and compares it with what the checkpoint's says.
func (c *Checkpoint) readPart(ctx context.Context, s storage.Store, host int) (*partManifest, error) {
	m := c.sharded
	name := partName(m.Step, m.Save, host)
	corrupt := func(reason string, err error) error {
		return &CorruptError{File: s.String() + "/" + name, Reason: reason, Err: err}
	}
	data, err := readSmall(ctx, s, name)
	if errors.Is(err, storage.ErrNotExist) {
		return nil, corrupt("the file is missing", err)
	}
	if err != nil {
		return nil, err
	}
	if want := m.Hosts[host]; int64(len(data)) != want.Bytes || checksum(0).plus(data) != want.CRC32C {
		return nil, corrupt(fmt.Sprintf("it has %d bytes of checksum %s, %d of %s were written", len(data), checksum(0).plus(data), want.Bytes, want.CRC32C), nil)
	}
	p := &partManifest{}
	if err := unseal(data, partFormat, p); err != nil {
		return nil, corrupt("no part", err)
	}
	return p, nil
}

// covered returns an error unless the regions make up the variable.
func (v *variable) covered() error {
	total := int64(0)
	starts := make([][]int, len(v.regions))
	for i, g := range v.regions {
		total += g.bytes
		starts[i] = g.start
	}
	slices.SortFunc(starts, func(a, b []int) int { return slices.Compare(a, b) })
	for i := 1; i < len(starts); i++ {
		if slices.Equal(starts[i-1], starts[i]) {
			return malformed("two begin at %v", starts[i])
		}
	}
	if total != v.bytes {
		return malformed("they have %d bytes of %d", total, v.bytes)
	}
	return nil
}
