package engine

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/internal/staging"
)

// Source reads shards of a tensor, for example from a file. It must be safe for concurrent use.
type Source interface {
	// ReadPart reads a slice of the tensor into dst in row-major order. The slice begins at index
	// start and has size elements in each dimension. ReadPart must not change start and size.
	ReadPart(ctx context.Context, start, size []int, dst []byte) error
}

// cellSource is a [Source] that can read several shards of equal size at once.
type cellSource interface {
	// ReadCells reads a slice of the tensor that consists of cells[i] shards in each dimension i.
	// dst receives one shard after the other, each in row-major order.
	ReadCells(ctx context.Context, start, size, cells []int, dst []byte) error
}

// Load describes a tensor that [Runtime.LoadTensors] copies from a source to the devices.
type Load struct {
	// Name is the name of the tensor in errors.
	Name   string
	Layout *Layout
	From   Source
	// Into are the buffers that [Runtime.LoadTensors] creates.
	Into Buffers
}

// shardRead is one read from a Source. It reads either one shard that all partitions have, or, if
// cells is not nil, a different shard for each partition.
type shardRead struct {
	of          *Load
	start, size []int
	cells       []int // number of shards in each dimension
	partitions  []int
	data        []byte // staging memory
}

// bytes returns the total size of the shards in bytes, with padding.
func (r *shardRead) bytes() int {
	if r.cells != nil {
		return r.of.Layout.ShardBytes * len(r.partitions)
	}
	return r.of.Layout.ShardBytes
}

// shardData returns the part of data that contains the shard of partition r.partitions[i].
func (r *shardRead) shardData(data []byte, i int) []byte {
	if r.cells == nil {
		return data
	}
	n := r.of.Layout.ShardBytes
	return data[i*n:][:n:n]
}

// planReads returns the reads for the shards of this process's devices. Several shards of a tensor
// can be read together if their total size is at most staged bytes.
func (m *Runtime) planReads(x *Load, staged int) (all []*shardRead) {
	for _, partition := range m.localPartitions {
		start, size := x.Layout.ShardBounds(partition)
		i := slices.IndexFunc(all, func(r *shardRead) bool {
			return slices.Equal(r.start, start) &&
				slices.Equal(r.size, size)
		})
		if i < 0 {
			i = len(all)
			all = append(all, &shardRead{of: x, start: start, size: size})
		}
		all[i].partitions = append(all[i].partitions, partition)
	}
	return m.mergeReads(x, all, staged)
}

// read reads the shards into data and clears their padding.
func (r *shardRead) read(ctx context.Context, into []byte) error {
	l := r.of.Layout
	if r.cells != nil {
		return r.of.From.(cellSource).ReadCells(ctx, r.start, r.size, r.cells, into)
	}
	n := l.Type.HostBytes() * numElements(r.size)
	if n < l.ShardBytes {
		clear(into)
	}
	switch {
	case n == 0:
		return nil
	case n == l.ShardBytes || l.PadsAtEnd():
		return r.of.From.ReadPart(ctx, r.start, r.size, into[:n])
	}
	box := make([]byte, n)
	if err := r.of.From.ReadPart(ctx, r.start, r.size, box); err != nil {
		return err
	}
	l.PadShard(into, box, r.partitions[0])
	return nil
}

func (m *Runtime) copyToDevices(ctx context.Context, r *shardRead) (err error) {
	l := r.of.Layout
	for i, partition := range r.partitions {
		if r.of.Into[partition], err = m.System.Runtime().BufferFromHost(ctx, r.shardData(r.data, i), l.Type, l.Buffer,
			m.All[partition]); err != nil {
			r.of.Into[partition] = nil
			return m.wrapError("copying to "+m.formatPartition(partition), err)
		}
	}
	return nil
}

// The limit of the staging memory on the host is 1/stagingDivisor of the bytes on the devices, and
// at least minStaging bytes.
const (
	stagingDivisor = 16
	minStaging     = 1 << 20
)

// LoadTensors reads the shards of tensors and copies them to the devices of this process, large
// shards first. It uses the given number of concurrent readers. Shards pass through staging memory
// on the host, which is limited to a sixteenth of the bytes on the devices, but at least 1 MiB or
// one shard. peak is the maximum staging memory in use, in bytes. After an error all buffers are
// closed.
func (m *Runtime) LoadTensors(ctx context.Context, all []*Load, readers int) (peak int, err error) {
	total := 0
	for _, x := range all {
		total += x.Layout.ShardBytes * m.NumLocal()
		x.Into = m.Buffers()
	}
	limit, staged := max(total/stagingDivisor, minStaging), 0
	if readers > 1 {
		staged = limit / readers
	}
	var reads []*shardRead
	for _, x := range all {
		reads = append(reads, m.planReads(x, staged)...)
	}
	slices.SortStableFunc(reads, func(a, b *shardRead) int { return b.of.Layout.ShardBytes - a.of.Layout.ShardBytes })
	pool := staging.New(limit)
	defer pool.Close()
	group, within := errgroup.WithContext(ctx)
	queue := make(chan *shardRead, len(reads))
	group.Go(func() error {
		defer close(queue)
		reading, within := errgroup.WithContext(within)
		reading.SetLimit(readers)
		for _, r := range reads {
			reading.Go(func() error {
				if err := context.Cause(within); err != nil {
					return err
				}
				if err := m.loadShards(within, r, pool, queue); err != nil {
					return m.wrapError("reading "+r.of.Name, err)
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
					failed = m.copyToDevices(within, r)
				}
				if failed != nil {
					failed = m.wrapError(r.of.Name, failed)
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
				err = m.wrapError("waiting for "+x.Name, err)
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

// loadShards performs the read r. It reads the shards directly into device memory if possible.
// Otherwise it reads them into staging memory and adds r to the queue, whose receiver copies the
// shards to the devices.
func (m *Runtime) loadShards(ctx context.Context, r *shardRead, pool *staging.Pool,
	queue chan<- *shardRead) (err error) {
	if rt := m.runtimeInPlace(r); rt != nil {
		return m.readInPlace(ctx, r, rt)
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
