package strategy

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// tensorReader gives replica r's tensor, row-major, for the time of a call.
type tensorReader func(r int, use func(data []byte)) error

// upload copies the replicas' tensors to this process's devices, into buffers. A nil buffer is
// made, a closed one is used again. Replicas that have no device here are not read. After an error
// no buffer is live.
func (s *TPUStrategy) upload(ctx context.Context, l *layout, read tensorReader, buffers []*pjrt.Buffer) error {
	if s.slice != nil {
		return nil // there is nowhere to copy to
	}
	var scratch []byte
	for _, r := range s.processes.replicas {
		var failed error
		err := read(r, func(data []byte) {
			for p := 0; p < s.logicalDevices && failed == nil; p++ {
				failed = s.uploadPart(ctx, l, r, p, data, &scratch, buffers)
			}
		})
		if failed == nil {
			failed = err
		}
		if failed != nil {
			_ = closeAll(buffers)
			return failed
		}
	}
	return nil
}

// concurrentBytes is from when on a copy is worth a goroutine for each device: it takes a
// millisecond or so.
const concurrentBytes = 4 << 20

// uploadHeld is upload of tensors that all lie in memory: tensor answers replica r's. Much is
// copied to the devices side by side, on as many CPUs as there are.
func (s *TPUStrategy) uploadHeld(ctx context.Context, l *layout, tensor func(r int) []byte, buffers []*pjrt.Buffer) (err error) {
	switch {
	case s.slice != nil:
		return nil
	case l.shardBytes*len(s.processes.replicas)*s.logicalDevices >= concurrentBytes:
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(runtime.GOMAXPROCS(0))
		for _, r := range s.processes.replicas {
			for p := range s.logicalDevices {
				group.Go(func() error {
					var scratch []byte
					return s.uploadPart(ctx, l, r, p, tensor(r), &scratch, buffers)
				})
			}
		}
		err = group.Wait()
	default:
		var scratch []byte
		for _, r := range s.processes.replicas {
			for p := 0; p < s.logicalDevices && err == nil; p++ {
				err = s.uploadPart(ctx, l, r, p, tensor(r), &scratch, buffers)
			}
		}
	}
	if err != nil {
		_ = closeAll(buffers)
	}
	return err
}

// uploadPart copies what logical device p holds of replica r's tensor, if that device is this
// process's.
func (s *TPUStrategy) uploadPart(ctx context.Context, l *layout, r, p int, data []byte, scratch *[]byte, buffers []*pjrt.Buffer) (err error) {
	d := r*s.logicalDevices + p
	if !s.processes.local[d] {
		return nil
	}
	if len(data) != l.bytes {
		return fault.New(ValueError, fmt.Sprintf("copying to replica %d", r), "give a tensor of that shape", "%d bytes for %s%v, which is %d", len(data), l.dtype, l.shape, l.bytes)
	}
	part, rt := l.part(data, r, p, scratch), s.sys.Runtime()
	if buffers[d] == nil {
		buffers[d], err = rt.BufferFromHost(ctx, part, l.wire, l.buffer, s.devices[d])
	} else {
		err = rt.RefillFromHost(ctx, buffers[d], part, l.wire, l.buffer, s.devices[d])
	}
	if err != nil {
		return fault.Of(fmt.Sprintf("copying to replica %d, logical device %d", r, p), err, "")
	}
	return nil
}
