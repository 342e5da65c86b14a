package mesh

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/internal/staging"
)

// Source is a tensor that lies nowhere as a whole, such as one of a file: its parts are read where
// they are needed. Its methods are safe for concurrent use. It may also have
// ReadCells(ctx, start, size, cells, into), which fills into with a box that is cut into cells, so many
// in each dimension: the cells in row-major order, and row-major in themselves.
type Source interface {
	// ReadPart fills into with the elements from start on, size of them in each dimension, row-major.
	// start and size are not to be changed.
	ReadPart(ctx context.Context, start, size []int, into []byte) error
}

type cellSource interface {
	ReadCells(ctx context.Context, start, size, cells []int, into []byte) error
}

// Load is one tensor on its way from a source to this process's devices.
type Load struct {
	// Name names the tensor in errors.
	Name   string
	Layout *Layout
	From   Source
	// Into are the buffers, which [Machine.Fill] makes.
	Into Buffers
}

// partRead is a part that some devices hold: it is read once. With cells it is several parts, one for
// each device.
type partRead struct {
	of          *Load
	start, size []int
	cells       []int
	partitions  []int
	data        []byte // staged
}

// bytes is what the parts take.
func (r *partRead) bytes() int {
	if r.cells != nil {
		return r.of.Layout.PartBytes * len(r.partitions)
	}
	return r.of.Layout.PartBytes
}

// part is what the i-th device gets of data.
func (r *partRead) part(data []byte, i int) []byte {
	if r.cells == nil {
		return data
	}
	n := r.of.Layout.PartBytes
	return data[i*n:][:n:n]
}

// reads lists the parts that this process's devices hold. Several parts of one tensor that have no
// more than so many bytes may be staged together.
func (m *Machine) reads(x *Load, staged int) (all []*partRead) {
	for _, partition := range m.mine {
		start, size := x.Layout.At(partition)
		i := slices.IndexFunc(all, func(r *partRead) bool { return slices.Equal(r.start, start) && slices.Equal(r.size, size) })
		if i < 0 {
			i = len(all)
			all = append(all, &partRead{of: x, start: start, size: size})
		}
		all[i].partitions = append(all[i].partitions, partition)
	}
	return m.together(x, all, staged)
}

// read reads the part, or the parts, with their padding.
func (r *partRead) read(ctx context.Context, into []byte) error {
	l := r.of.Layout
	if r.cells != nil {
		return r.of.From.(cellSource).ReadCells(ctx, r.start, r.size, r.cells, into)
	}
	n := l.Type.HostBytes() * size(r.size)
	if n < l.PartBytes {
		clear(into)
	}
	switch {
	case n == 0:
		return nil
	case n == l.PartBytes || l.PadsAtEnd():
		return r.of.From.ReadPart(ctx, r.start, r.size, into[:n])
	}
	box := make([]byte, n)
	if err := r.of.From.ReadPart(ctx, r.start, r.size, box); err != nil {
		return err
	}
	l.Pad(into, box, r.partitions[0])
	return nil
}

// put copies the staged part to its devices.
func (m *Machine) put(ctx context.Context, r *partRead) (err error) {
	l := r.of.Layout
	for i, partition := range r.partitions {
		if r.of.Into[partition], err = m.System.Runtime().BufferFromHost(ctx, r.part(r.data, i), l.Type, l.Buffer, m.All[partition]); err != nil {
			r.of.Into[partition] = nil
			return m.failed("copying to "+m.device(partition), err)
		}
	}
	return nil
}

// stagedShare is the part of what devices hold that the host may hold on the way to them.
const stagedShare = 16

// leastStaged is what it may hold in any case.
const leastStaged = 1 << 20

// Fill reads tensors' parts, so many at a time, and copies them to this process's devices while others
// are read. The large ones come first, as long as there is much room. The host holds a sixteenth of
// what its devices get, or one part that is larger; peak is the most that it held. After an error no
// buffer is live.
func (m *Machine) Fill(ctx context.Context, all []*Load, readers int) (peak int, err error) {
	total := 0
	for _, x := range all {
		total += x.Layout.PartBytes * m.NumLocal()
		x.Into = m.Buffers()
	}
	limit, staged := max(total/stagedShare, leastStaged), 0
	if readers > 1 {
		staged = limit / readers
	}
	var reads []*partRead
	for _, x := range all {
		reads = append(reads, m.reads(x, staged)...)
	}
	slices.SortStableFunc(reads, func(a, b *partRead) int { return b.of.Layout.PartBytes - a.of.Layout.PartBytes })
	pool := staging.New(limit)
	defer pool.Close()
	group, within := errgroup.WithContext(ctx)
	queue := make(chan *partRead, len(reads))
	group.Go(func() error {
		defer close(queue)
		reading, within := errgroup.WithContext(within)
		reading.SetLimit(readers)
		for _, r := range reads {
			reading.Go(func() error {
				if err := context.Cause(within); err != nil {
					return err
				}
				if err := m.bring(within, r, pool, queue); err != nil {
					return m.failed("reading "+r.of.Name, err)
				}
				return nil
			})
		}
		return reading.Wait()
	})
	group.Go(func() (failed error) {
		for r := range queue {
			if failed == nil {
				if failed = context.Cause(within); failed == nil {
					failed = m.put(within, r)
				}
				if failed != nil {
					failed = m.failed(r.of.Name, failed)
				}
			}
			pool.Put(r.data)
		}
		return failed
	})
	err = group.Wait()
	for _, x := range all {
		if err == nil {
			if err = x.Into.Ready(ctx); err != nil {
				err = m.failed("waiting for "+x.Name, err)
			}
		}
	}
	if err != nil {
		for _, x := range all {
			err = errors.Join(err, x.Into.Close())
		}
	}
	return pool.Peak(), err
}

// bring reads a part to where it stays, or to where devices copy it from.
func (m *Machine) bring(ctx context.Context, r *partRead, pool *staging.Pool, queue chan<- *partRead) (err error) {
	if rt := m.inPlace(r); rt != nil {
		return m.place(ctx, r, rt)
	}
	if r.data, err = pool.Get(ctx, r.bytes()); err != nil {
		return err
	}
	if err := r.read(ctx, r.data); err != nil {
		pool.Put(r.data)
		return err
	}
	queue <- r
	return nil
}
