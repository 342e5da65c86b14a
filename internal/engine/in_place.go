package engine

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/internal/staging"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// inPlaceRuntime is implemented by runtimes that can create a buffer from host memory without a
// copy.
type inPlaceRuntime interface {
	BufferFromHostInPlace(ctx context.Context, data []byte, dtype pjrt.DType, dims []int, d *pjrt.Device,
		free func()) (*pjrt.Buffer, error)
}

// minInPlace is the minimum size in bytes of shards that are read directly into a buffer's memory.
const minInPlace = 256 << 10

// hostMemoryRuntime returns the system's runtime if its devices use host memory, and otherwise nil.
func (m *Runtime) hostMemoryRuntime() inPlaceRuntime {
	rt, ok := m.System.Runtime().(inPlaceRuntime)
	if !ok || m.platform != "cpu" {
		return nil
	}
	return rt
}

// runtimeInPlace returns the system's runtime if the shards of r can be read directly into the
// memory of their buffers. It returns nil if the shards must be copied.
func (m *Runtime) runtimeInPlace(r *shardRead) inPlaceRuntime {
	if r.cells == nil && len(r.partitions) != 1 || r.of.Layout.ShardBytes*len(r.partitions) < minInPlace {
		return nil
	}
	return m.hostMemoryRuntime()
}

func (m *Runtime) readInPlace(ctx context.Context, r *shardRead, rt inPlaceRuntime) error {
	data, err := staging.Alloc(r.bytes())
	if err != nil {
		return err
	}
	err = r.read(ctx, data)
	var users atomic.Int32
	users.Store(int32(len(r.partitions)))
	free := func() {
		if users.Add(-1) == 0 {
			staging.Free(data)
		}
	}
	for i, partition := range r.partitions {
		if err == nil {
			r.of.Into[partition], err = rt.BufferFromHostInPlace(ctx, r.shardData(data, i), r.of.Layout.Type,
				r.of.Layout.Buffer, m.All[partition], free)
		}
		if err != nil {
			free()
		}
	}
	return err
}

// mergeReads combines all reads of a tensor into one read if the shards form a grid. The shards
// must either be read directly into the memory of their buffers, or have a total size of at most
// staged bytes.
func (m *Runtime) mergeReads(x *Load, all []*shardRead, staged int) []*shardRead {
	l := x.Layout
	bytes := l.ShardBytes * len(all)
	if _, ok := x.From.(cellSource); !ok || len(all) < 2 || bytes == 0 {
		return all
	}
	host := m.hostMemoryRuntime() != nil
	if stay := host && bytes >= minInPlace && l.ShardBytes%pjrt.Alignment == 0; !stay && (bytes > staged || host) {
		return all
	}
	rank := len(l.Shape)
	box := &shardRead{of: x, start: slices.Clone(all[0].start), cells: make([]int, rank), size: make([]int, rank)}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b *shardRead) int { return slices.Compare(a.start, b.start) })
	n := 1
	for dim := range box.start {
		var starts []int
		for _, r := range sorted {
			if len(r.partitions) != 1 || !slices.Equal(r.size, all[0].size) ||
				l.Type.HostBytes()*numElements(r.size) != l.ShardBytes {
				return all
			}
			starts = append(starts, r.start[dim])
		}
		slices.Sort(starts)
		starts = slices.Compact(starts)
		if starts[len(starts)-1]-starts[0] != (len(starts)-1)*all[0].size[dim] {
			return all
		}
		box.start[dim], box.cells[dim], box.size[dim] = starts[0], len(starts), len(starts)*all[0].size[dim]
		n *= len(starts)
	}
	if n != len(all) { // all starts are different, so n cells cover all positions
		return all
	}
	for _, r := range sorted {
		box.partitions = append(box.partitions, r.partitions[0])
	}
	return []*shardRead{box}
}
