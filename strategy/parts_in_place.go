package strategy

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/staging"
)

// hostMemory is a runtime whose devices may have the host's memory: what is read for one of them can
// stay where it is.
type hostMemory interface {
	PlatformName() string
	BufferFromHostInPlace(ctx context.Context, data []byte, dtype pjrt.DType, dims []int, d *pjrt.Device, free func()) (*pjrt.Buffer, error)
}

// leastInPlace is from how many bytes on a part has memory of its own.
const leastInPlace = 256 << 10

// inCells is a value of which a box can be read in cells, one after the other; see [Parts].
type inCells interface {
	ReadCells(ctx context.Context, start, size, cells []int, into []byte) error
}

// hostMemory returns the runtime if its devices have the host's memory, and nil otherwise.
func (x *partLoad) hostMemory() hostMemory {
	rt, ok := x.variable.strategy.sys.Runtime().(hostMemory)
	if !ok || rt.PlatformName() != "cpu" {
		return nil
	}
	return rt
}

// inPlace returns the runtime if the part is read to where it stays, and nil if it is copied there.
func (r *partRead) inPlace() hostMemory {
	if r.cells == nil && len(r.devices) != 1 || r.of.layout.shardBytes*len(r.devices) < leastInPlace {
		return nil
	}
	return r.of.hostMemory()
}

// together makes one of parts that are the cells of a box, if they can be read so to where they
// stay, or have no more than so many bytes to be staged.
func (x *partLoad) together(all []*partRead, staged int) []*partRead {
	l := &x.layout
	bytes := l.shardBytes * len(all)
	if _, ok := x.parts.(inCells); !ok || len(all) < 2 || bytes == 0 {
		return all
	}
	if stay := x.hostMemory() != nil && bytes >= leastInPlace && l.shardBytes%pjrt.Alignment == 0; !stay && (bytes > staged || x.hostMemory() != nil) {
		return all
	}
	box := &partRead{of: x, start: slices.Clone(all[0].start), cells: make([]int, len(l.shape)), size: make([]int, len(l.shape))}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b *partRead) int { return slices.Compare(a.start, b.start) })
	n := 1
	for d := range box.start {
		var starts []int
		for _, r := range sorted {
			if len(r.devices) != 1 || !slices.Equal(r.size, all[0].size) || l.wire.HostBytes()*size(r.size) != l.shardBytes {
				return all
			}
			starts = append(starts, r.start[d])
		}
		slices.Sort(starts)
		starts = slices.Compact(starts)
		if starts[len(starts)-1]-starts[0] != (len(starts)-1)*all[0].size[d] {
			return all
		}
		box.start[d], box.cells[d], box.size[d] = starts[0], len(starts), len(starts)*all[0].size[d]
		n *= len(starts)
	}
	if n != len(all) { // all starts are different, so that as many are all of them
		return all
	}
	for _, r := range sorted {
		box.devices = append(box.devices, r.devices[0])
	}
	return []*partRead{box}
}

// place reads the part, or the parts, to where they stay.
func (r *partRead) place(ctx context.Context, rt hostMemory) error {
	x, l := r.of, &r.of.layout
	data, err := staging.Take(l.shardBytes * len(r.devices))
	if err != nil {
		return err
	}
	if r.cells != nil {
		err = x.parts.(inCells).ReadCells(ctx, r.start, r.size, r.cells, data)
	} else {
		err = r.read(ctx, data)
	}
	var users atomic.Int32
	users.Store(int32(len(r.devices)))
	free := func() {
		if users.Add(-1) == 0 {
			staging.Give(data)
		}
	}
	for i, d := range r.devices {
		if err == nil {
			part := data[i*l.shardBytes:][:l.shardBytes:l.shardBytes]
			x.fresh[d], err = rt.BufferFromHostInPlace(ctx, part, l.wire, l.buffer, x.variable.strategy.devices[d], free)
		}
		if err != nil {
			free()
		}
	}
	return err
}
