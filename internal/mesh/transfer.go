package mesh

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// concurrentBytes is from when on a copy is worth a goroutine for each device: it takes a
// millisecond or so.
const concurrentBytes = 4 << 20

// Put copies the groups' tensors, row-major, to this process's devices. tensor answers a group's; a
// group without a device here is not asked for. A nil buffer is made, a closed one is filled again.
// Much is copied to the devices side by side, on as many CPUs as there are. When Put returns the
// tensors have been read. After an error no buffer is live.
func (m *Machine) Put(ctx context.Context, l *Layout, tensor func(group int) []byte, into Buffers) (err error) {
	if local := m.NumLocal(); local > 1 && l.PartBytes*local >= concurrentBytes {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(runtime.GOMAXPROCS(0))
		for _, i := range m.mine {
			of := tensor(i / l.group) // here, so that no closure of a caller is allocated
			group.Go(func() error {
				var scratch []byte
				return m.PutPart(ctx, l, i, of, &scratch, into)
			})
		}
		err = group.Wait()
	} else {
		var scratch []byte
		for _, i := range m.mine {
			if err = m.PutPart(ctx, l, i, tensor(i/l.group), &scratch, into); err != nil {
				break
			}
		}
	}
	if err != nil {
		_ = into.Close()
	}
	return err
}

// PutPart copies what one of this process's partitions holds of its group's tensor.
func (m *Machine) PutPart(ctx context.Context, l *Layout, partition int, tensor []byte, scratch *[]byte, into Buffers) (err error) {
	if len(tensor) != l.Bytes {
		return m.fault(errkind.ValueError, "copying to "+m.device(partition), "give a tensor of that shape", "%d bytes for %s%v, which is %d",
			len(tensor), l.Type, l.Shape, l.Bytes)
	}
	part, rt := l.Part(tensor, partition, scratch), m.System.Runtime()
	if into[partition] == nil {
		into[partition], err = rt.BufferFromHost(ctx, part, l.Type, l.Buffer, m.All[partition])
	} else {
		err = rt.RefillFromHost(ctx, into[partition], part, l.Type, l.Buffer, m.All[partition])
	}
	if err != nil {
		return m.failed("copying to "+m.device(partition), err)
	}
	return nil
}

// Wait waits until some partitions have their parts of a tensor.
func (m *Machine) Wait(ctx context.Context, partitions []int, from Buffers) error {
	for _, i := range partitions {
		if err := from[i].Ready(ctx); err != nil {
			return m.failed("reading "+m.device(i), err)
		}
	}
	return nil
}

// Get copies a tensor to the host, row-major, from partitions that hold all of its parts, as
// [Processes.Sources] names them. It waits for the contents.
func (m *Machine) Get(ctx context.Context, l *Layout, from Buffers, partitions []int, tensor []byte) error {
	var scratch []byte
	for _, i := range partitions {
		offset, one := l.Span(i)
		part := scratch
		if one {
			part = tensor[offset : offset+l.PartBytes]
		} else if part == nil {
			scratch = make([]byte, l.PartBytes)
			part = scratch
		}
		if err := from[i].ToHost(ctx, part); err != nil {
			return m.failed("reading "+m.device(i), err)
		}
		if !one {
			l.Put(tensor, part, i)
		}
	}
	return nil
}

// GetPart copies what a partition of this process holds of a tensor to the host, without padding.
func (m *Machine) GetPart(ctx context.Context, l *Layout, from Buffers, partition int, box []byte) error {
	if len(box) == 0 {
		return nil
	}
	if len(box) == l.PartBytes {
		return from[partition].ToHost(ctx, box)
	}
	part := make([]byte, l.PartBytes)
	if err := from[partition].ToHost(ctx, part); err != nil {
		return err
	}
	l.Unpad(box, part, partition)
	return nil
}
