package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/staging"
)

// partLoad brings one variable's parts to this process's devices.
type partLoad struct {
	variable *Variable
	parts    Parts
	layout   layout
	fresh    []*pjrt.Buffer
	waits    bool // for its first value
}

// partRead is a part that some devices hold: it is read once. With cells it is several parts, one
// for each device.
type partRead struct {
	of          *partLoad
	start, size []int
	cells       []int
	devices     []int
	data        []byte // staged
}

// partLoad returns the loading of a variable.
func (s *TPUStrategy) partLoad(v *Variable, p Parts) (*partLoad, error) {
	if !p.Shape().Equal(v.Shape()) {
		return nil, fault.New(ValueError, fmt.Sprintf("variable %q", v.path), "give parts of its shape and dtype", "parts of %s for a variable of %s", p.Shape(), v.Shape())
	}
	l, err := v.layout()
	if err != nil {
		return nil, fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
	}
	return &partLoad{variable: v, parts: p, layout: l, fresh: make([]*pjrt.Buffer, len(s.devices)), waits: v.waiting.Load() != nil}, nil
}

// reads lists the parts that this process's devices hold. Several parts of one variable that have no
// more than so many bytes may be staged together.
func (x *partLoad) reads(staged int) (all []*partRead) {
	s := x.variable.strategy
	for d := range s.devices {
		if !s.processes.local[d] {
			continue
		}
		start, size := x.layout.held(d/s.logicalDevices, d%s.logicalDevices)
		i := slices.IndexFunc(all, func(r *partRead) bool { return slices.Equal(r.start, start) && slices.Equal(r.size, size) })
		if i < 0 {
			i = len(all)
			all = append(all, &partRead{of: x, start: start, size: size})
		}
		all[i].devices = append(all[i].devices, d)
	}
	return x.together(all, staged)
}

// stage reads the part to where devices copy it from.
func (r *partRead) stage(ctx context.Context, pool *staging.Pool) (err error) {
	n := r.of.layout.shardBytes
	if r.cells != nil {
		n *= len(r.devices)
	}
	if r.data, err = pool.Get(ctx, n); err != nil {
		return err
	}
	if r.cells != nil {
		return r.of.parts.(inCells).ReadCells(ctx, r.start, r.size, r.cells, r.data)
	}
	return r.read(ctx, r.data)
}

// read reads the part, with its padding.
func (r *partRead) read(ctx context.Context, into []byte) error {
	l := &r.of.layout
	n := l.wire.HostBytes() * size(r.size)
	if n < l.shardBytes {
		clear(into)
	}
	switch {
	case n == 0:
		return nil
	case n == l.shardBytes || l.over.Dim == 0: // the padding is at the end
		return r.of.parts.ReadPart(ctx, r.start, r.size, into[:n])
	}
	rows := make([]byte, n)
	if err := r.of.parts.ReadPart(ctx, r.start, r.size, rows); err != nil {
		return err
	}
	inner := layout{wire: l.wire, shape: r.size, shard: l.shard, over: module.Over{Dim: l.over.Dim, Size: r.size[l.over.Dim]}, starts: [][]int{make([]int, len(r.size))}}
	inner.each(0, 0, func(inRows, inPart, n int) { copy(into[inPart:inPart+n], rows[inRows:inRows+n]) })
	return nil
}

// copy copies the staged part to its devices.
func (r *partRead) copy(ctx context.Context) error {
	x := r.of
	s, l := x.variable.strategy, &x.layout
	for i, d := range r.devices {
		data := r.data
		if r.cells != nil {
			data = data[i*l.shardBytes:][:l.shardBytes]
		}
		b, err := s.sys.Runtime().BufferFromHost(ctx, data, l.wire, l.buffer, s.devices[d])
		if err != nil {
			return fault.Of(fmt.Sprintf("copying to replica %d, logical device %d", d/s.logicalDevices, d%s.logicalDevices), err, "")
		}
		x.fresh[d] = b
	}
	return nil
}

// stagedShare is the part of what devices hold that the host may hold on the way to them.
const stagedShare = 16

// leastStaged is what it may hold in any case.
const leastStaged = 1 << 20

// uploadParts reads variables' parts and copies them to this process's devices: a part is read
// while the one before it is copied. The large ones come first, as long as there is much room. The
// host holds a sixteenth of what its devices get, or one part that is larger. After an error no
// buffer is live.
func (s *TPUStrategy) uploadParts(ctx context.Context, all []*partLoad) (staged int, err error) {
	return s.uploadPartsBy(ctx, all, 1)
}

// uploadPartsBy is uploadParts with so many parts read at a time.
func (s *TPUStrategy) uploadPartsBy(ctx context.Context, all []*partLoad, readers int) (peak int, err error) {
	var reads []*partRead
	total := 0
	for _, x := range all {
		total += x.layout.shardBytes * x.variable.strategy.localDevices()
	}
	limit, staged := max(total/stagedShare, leastStaged), 0
	if readers > 1 {
		staged = limit / readers
	}
	for _, x := range all {
		reads = append(reads, x.reads(staged)...)
	}
	slices.SortStableFunc(reads, func(a, b *partRead) int { return b.of.layout.shardBytes - a.of.layout.shardBytes })
	pool := staging.New(limit)
	defer pool.Close()
	group, within := errgroup.WithContext(ctx)
	queue := make(chan *partRead, len(reads))
	var next, reading atomic.Int64
	reading.Store(int64(readers))
	read := func() error {
		defer func() {
			if reading.Add(-1) == 0 {
				close(queue)
			}
		}()
		for i := next.Add(1) - 1; i < int64(len(reads)); i = next.Add(1) - 1 {
			r := reads[i]
			if err := context.Cause(within); err != nil {
				return err
			}
			var err error
			rt := r.inPlace()
			if rt != nil {
				err = r.place(within, rt)
			} else {
				err = r.stage(within, pool)
			}
			if err != nil {
				if r.data != nil {
					pool.Put(r.data)
				}
				return fault.Of(fmt.Sprintf("reading variable %q", r.of.variable.path), err, "")
			}
			if rt == nil {
				queue <- r
			}
		}
		return nil
	}
	for range readers {
		group.Go(read)
	}
	group.Go(func() (failed error) {
		for r := range queue {
			if failed == nil {
				if failed = context.Cause(within); failed == nil {
					failed = r.copy(within)
				}
				if failed != nil {
					failed = fault.Of(fmt.Sprintf("variable %q", r.of.variable.path), failed, "")
				}
			}
			pool.Put(r.data)
		}
		return failed
	})
	err = group.Wait()
	for _, x := range all {
		if err == nil {
			err = ready(ctx, x.fresh)
		}
	}
	if err != nil {
		for _, x := range all {
			err = errors.Join(err, closeAll(x.fresh))
		}
	}
	return pool.Peak(), err
}

// readParts brings one variable's parts to this process's devices.
func (v *Variable) readParts(ctx context.Context, p Parts) ([]*pjrt.Buffer, error) {
	x, err := v.strategy.partLoad(v, p)
	if err != nil {
		return nil, err
	}
	v.shardBytes = x.layout.shardBytes
	if _, err := v.strategy.uploadParts(ctx, []*partLoad{x}); err != nil {
		return nil, err
	}
	return x.fresh, nil
}

// localDevices is how many devices of the strategy are this process's.
func (s *TPUStrategy) localDevices() (n int) {
	for _, local := range s.processes.local {
		if local {
			n++
		}
	}
	return n
}
