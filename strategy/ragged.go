package strategy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
)

// A compiled program has the same shapes on all replicas. A value whose replicas have different
// shapes, such as the last batch of a dataset, is padded on the devices to the largest size of each
// dimension, and its actual shapes are stored with it.

func copyInputTensor(op string, t hostArray) (*tensors.Tensor, error) {
	dtype, ok := t.DType()
	if !ok {
		return nil, newDTypeError(op, t)
	}
	out := tensors.FromShape(shapes.Make(dtype, t.Dims()...))
	if err := out.MutableBytes(func(to []byte) { copy(to, t.Bytes()) }); err != nil {
		return nil, fault.Wrap(op, err, "")
	}
	return out, nil
}

// paddedShape returns the smallest dimensions into which the tensor of each replica fits, and
// whether the tensors have different shapes. If the shapes differ, the dimensions are rounded up so
// that the annotation splits them evenly.
func (b batchSplitter) paddedShape(all [][]int) (dims []int, ragged bool) {
	dims = slices.Clone(all[0])
	for _, shape := range all {
		for d, n := range shape {
			ragged = ragged || n != dims[d]
			dims[d] = max(dims[d], n)
		}
	}
	if !ragged {
		return dims, false
	}
	for d := range dims {
		if slices.ContainsFunc(all, func(shape []int) bool { return shape[d] != dims[d] }) {
			dims[d] = max(dims[d], 2) // a size of 1 would be broadcast
		}
	}
	for d, parts := range b.annotation.PartsOn(b.axes) {
		if d < len(dims) && parts > 0 {
			dims[d] = (dims[d] + parts - 1) / parts * parts
		}
	}
	return dims, true
}

// putTensors creates a value from one tensor for each replica. It pads the tensors if their shapes
// differ.
func (b batchSplitter) putTensors(ctx context.Context, all []*tensors.Tensor) (*PerReplica, error) {
	of := make([]shapes.Shape, len(all))
	for r, t := range all {
		of[r] = t.Shape()
	}
	return b.putShapes(ctx, all, of)
}

// putShapes is like putTensors, but receives the shapes of all tensors separately. The tensor of a
// replica may therefore be nil if this process has no device of the replica.
func (b batchSplitter) putShapes(ctx context.Context, all []*tensors.Tensor, types []shapes.Shape) (*PerReplica,
	error) {
	first, real := types[0], make([][]int, len(all))
	for r, shape := range types {
		if shape.DType != first.DType || shape.Rank() != first.Rank() {
			kind := errkind.TypeError
			if shape.DType == first.DType {
				kind = errkind.InvalidArgumentError
			}
			return nil, fault.New(kind, "per-replica value", "give values of one dtype and rank",
				"that of replica %d is %s, that of replica 0 %s", r, shape, first)
		}
		real[r] = slices.Clone(shape.Dimensions)
	}
	dims, ragged := b.paddedShape(real)
	v, err := b.newUploadedValue(true, first.DType, dims, b.annotation,
		func(l *engine.Layout, buffers engine.Buffers) error {
			return b.upload(ctx, l, buffers, func(r int, use func([]byte)) error {
				if !ragged {
					return all[b.shareOf(r)].ConstBytes(use)
				}
				padded := make([]byte, l.Bytes)
				err := all[r].ConstBytes(func(data []byte) {
					engine.CopyBlock(first.DType.Size(), real[r], data,
						real[r], padded, dims)
				})
				if err == nil {
					use(padded)
				}
				return err
			})
		})
	if err != nil {
		return nil, err
	}
	if ragged {
		v.base().replicaShapes = real
	}
	return v.(*PerReplica), nil
}

// upload copies the replicas' tensors to this process's devices. The function read provides the
// row-major data of replica r: it calls use with the data, and use does not retain the data. read
// is not called for a replica without a device in this process. After an error upload closes all
// buffers.
func (b batchSplitter) upload(ctx context.Context, l *engine.Layout, buffers engine.Buffers,
	read func(r int, use func(data []byte)) error) error {
	var scratch []byte
	for _, r := range b.runtime.Groups {
		var failed error
		err := read(r, func(data []byte) {
			for d := r * b.logicalDevices; d < (r+1)*b.logicalDevices && failed == nil; d++ {
				if b.runtime.Local[d] {
					failed = b.runtime.PutShard(ctx, l, d, data, &scratch, buffers)
				}
			}
		})
		if err = cmp.Or(failed, err); err != nil {
			_ = buffers.Close()
			return err
		}
	}
	return nil
}

// truncateTensor removes padding: it returns the part of t at the start of each dimension, with
// dimensions dims.
func truncateTensor(t *tensors.Tensor, dims []int) (*tensors.Tensor, error) {
	out := tensors.FromShape(shapes.Make(t.DType(), dims...))
	err := t.ConstBytes(func(from []byte) {
		_ = out.MutableBytes(func(to []byte) {
			engine.CopyBlock(t.DType().Size(), dims, from, t.Shape().Dimensions,
				to, dims)
		})
	})
	if err != nil {
		return nil, fault.Wrap(fmt.Sprintf("cutting a tensor of shape %s", t.Shape()), err, "")
	}
	return out, nil
}

// newSizesValue returns a value that contains the actual shape of each replica's tensor, for
// programs that mask the padding.
func (v *deviceValue) newSizesValue(ctx context.Context) (*PerReplica, error) {
	sizes := make([]any, v.strategy.replicas)
	for r := range sizes {
		row := make([]int32, len(v.shape))
		for d, n := range v.replicaShapes[r] {
			row[d] = int32(n)
		}
		sizes[r] = row
	}
	return v.strategy.PerReplica(ctx, sizes, logical.Annotation{})
}
