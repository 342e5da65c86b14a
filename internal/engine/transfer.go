package engine

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// concurrentBytes is the minimum total size in bytes of a copy that uses one goroutine per device.
// Such a copy takes about a millisecond.
const concurrentBytes = 4 << 20

// PutTensor copies row-major tensors from host memory to the devices of this process. The function
// tensor returns the tensor of a group, and is called for each group that has a device of this
// process. PutTensor creates the nil elements of into and refills closed buffers. Large tensors are
// copied concurrently. When PutTensor returns, the tensors have been read. After an error all
// buffers are closed.
func (m *Runtime) PutTensor(ctx context.Context, l *Layout, tensor func(group int) []byte, into Buffers) (err error) {
	if local := m.NumLocal(); local > 1 && l.ShardBytes*local >= concurrentBytes {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(runtime.GOMAXPROCS(0))
		for _, i := range m.localPartitions {
			of := tensor(i / l.group) // called here so that no closure of the caller is allocated
			group.Go(func() error {
				var scratch []byte
				return m.PutShard(ctx, l, i, of, &scratch, into)
			})
		}
		err = group.Wait()
	} else {
		var scratch []byte
		for _, i := range m.localPartitions {
			if err = m.PutShard(ctx, l, i, tensor(i/l.group), &scratch, into); err != nil {
				break
			}
		}
	}
	if err != nil {
		_ = into.Close()
	}
	return err
}

// PutShard copies the shard of one partition of this process to its device. tensor is the tensor of
// the partition's group. See [Layout.ExtractShard] for scratch.
func (m *Runtime) PutShard(ctx context.Context, l *Layout, partition int, tensor []byte, scratch *[]byte,
	into Buffers) (err error) {
	if len(tensor) != l.Bytes {
		return m.fault(errkind.ValueError, "copying to "+m.formatPartition(partition), "give a tensor of that shape",
			"%d bytes for %s%v, which is %d",
			len(tensor), l.Type, l.Shape, l.Bytes)
	}
	part, rt := l.ExtractShard(tensor, partition, scratch), m.System.Runtime()
	if into[partition] == nil {
		into[partition], err = rt.BufferFromHost(ctx, part, l.Type, l.Buffer, m.All[partition])
	} else {
		err = rt.RefillFromHost(ctx, into[partition], part, l.Type, l.Buffer, m.All[partition])
	}
	if err != nil {
		return m.wrapError("copying to "+m.formatPartition(partition), err)
	}
	return nil
}

// Wait waits until the contents of the buffers of the given partitions are available.
func (m *Runtime) Wait(ctx context.Context, partitions []int, from Buffers) error {
	for _, i := range partitions {
		if err := from[i].Ready(ctx); err != nil {
			return m.wrapError("reading "+m.formatPartition(i), err)
		}
	}
	return nil
}

// GetTensor copies a tensor from the devices to host memory in row-major order. The given
// partitions must together have all shards; see [Processes.Sources]. GetTensor waits until the
// contents of the buffers are available.
func (m *Runtime) GetTensor(ctx context.Context, l *Layout, from Buffers, partitions []int, tensor []byte) error {
	var scratch []byte
	for _, i := range partitions {
		offset, one := l.ContiguousOffset(i)
		part := scratch
		if one {
			part = tensor[offset : offset+l.ShardBytes]
		} else if part == nil {
			scratch = make([]byte, l.ShardBytes)
			part = scratch
		}
		if err := from[i].ToHost(ctx, part); err != nil {
			return m.wrapError("reading "+m.formatPartition(i), err)
		}
		if !one {
			l.InsertShard(tensor, part, i)
		}
	}
	return nil
}

// GetShard copies the shard of a partition of this process to host memory, without padding.
func (m *Runtime) GetShard(ctx context.Context, l *Layout, from Buffers, partition int, box []byte) error {
	if len(box) == 0 {
		return nil
	}
	if len(box) == l.ShardBytes {
		return from[partition].ToHost(ctx, box)
	}
	part := make([]byte, l.ShardBytes)
	if err := from[partition].ToHost(ctx, part); err != nil {
		return err
	}
	l.UnpadShard(box, part, partition)
	return nil
}
