package strategy

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
)

// tensorReader gives replica r's tensor, row-major, for the time of a call.
type tensorReader func(r int, use func(data []byte)) error

// upload copies the replicas' tensors to this process's devices, into buffers. A nil buffer is
// made, a closed one is filled again. Replicas that have no device here are not read. Ahead of time
// there is nowhere to copy to. After an error no buffer is live.
func (s *TPUStrategy) upload(ctx context.Context, l *mesh.Layout, read tensorReader, buffers mesh.Buffers) error {
	if s.devices == nil {
		return nil
	}
	var scratch []byte
	for _, r := range s.machine.Groups {
		var failed error
		err := read(r, func(data []byte) {
			for d := r * s.logicalDevices; d < (r+1)*s.logicalDevices && failed == nil; d++ {
				if s.machine.Local[d] {
					failed = s.devices.PutPart(ctx, l, d, data, &scratch, buffers)
				}
			}
		})
		if failed == nil {
			failed = err
		}
		if failed != nil {
			_ = buffers.Close()
			return failed
		}
	}
	return nil
}

// uploadHeld is upload of tensors that all lie in memory: tensor answers replica r's.
func (s *TPUStrategy) uploadHeld(ctx context.Context, l *mesh.Layout, tensor func(r int) []byte, buffers mesh.Buffers) error {
	if s.devices == nil {
		return nil
	}
	return s.devices.Put(ctx, l, tensor, buffers)
}
