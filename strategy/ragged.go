package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// A compiled program has one shape for all replicas. A value whose replicas differ in shape, such
// as the last batch of a dataset, is padded on the devices to the greatest size of each dimension,
// and its real shapes are kept beside it.

// copiedInput makes a GoMLX tensor of a tensor of package input.
func copiedInput(op string, t input.Tensor) (*tensors.Tensor, error) {
	dtype, ok := t.Kind().DType()
	if !ok {
		return nil, noDType(op, t)
	}
	out := tensors.FromShape(shapes.Make(dtype, t.Dims()...))
	if err := out.MutableBytes(func(to []byte) { copy(to, t.Bytes()) }); err != nil {
		return nil, fault.Of(op, err, "")
	}
	return out, nil
}

// put makes a value of the tensors of the replicas that share the batch, padding them if they
// differ: then also to what the parts of the annotation divide.
func (b batchShare) put(ctx context.Context, all []*tensors.Tensor) (*PerReplica, error) {
	dims := slices.Clone(all[0].Shape().Dimensions)
	ragged := false
	for r, t := range all {
		shape := t.Shape()
		if shape.DType != all[0].DType() || shape.Rank() != len(dims) {
			kind := errkind.TypeError
			if shape.DType == all[0].DType() {
				kind = errkind.InvalidArgumentError
			}
			return nil, fault.New(kind, "per-replica value", "give values of one dtype and rank",
				"that of replica %d is %s, that of replica 0 %s", r, shape, all[0].Shape())
		}
		for d, n := range shape.Dimensions {
			ragged = ragged || n != dims[d]
			dims[d] = max(dims[d], n)
		}
	}
	read := func(r int, use func([]byte)) error {
		return all[b.part(r)].ConstBytes(use)
	}
	if ragged {
		for d := range dims {
			if slices.ContainsFunc(all, func(t *tensors.Tensor) bool { return t.Shape().Dimensions[d] != dims[d] }) {
				dims[d] = max(dims[d], 2) // a size of 1 is broadcast, which a batch is not
			}
		}
		for d, parts := range b.annotation.PartsOn(b.axes) {
			if d < len(dims) && parts > 0 {
				dims[d] = (dims[d] + parts - 1) / parts * parts
			}
		}
		element := all[0].DType().Size()
		read = func(r int, use func([]byte)) error {
			padded := make([]byte, element*shapes.Make(all[0].DType(), dims...).Size())
			own := all[r].Shape().Dimensions
			err := all[r].ConstBytes(func(data []byte) { mesh.CopyBlock(element, own, data, own, padded, dims) })
			if err == nil {
				use(padded)
			}
			return err
		}
	}
	v, err := b.uploadedBy(true, all[0].DType(), dims, b.annotation, func(l *mesh.Layout, buffers mesh.Buffers) error { return b.upload(ctx, l, read, buffers) })
	if err != nil {
		return nil, err
	}
	if ragged {
		for _, t := range all {
			v.base().ragged = append(v.base().ragged, slices.Clone(t.Shape().Dimensions))
		}
	}
	return v.(*PerReplica), nil
}

// cut returns the leading block of a tensor.
func cut(t *tensors.Tensor, dims []int) (*tensors.Tensor, error) {
	out := tensors.FromShape(shapes.Make(t.DType(), dims...))
	err := t.ConstBytes(func(from []byte) {
		_ = out.MutableBytes(func(to []byte) { mesh.CopyBlock(t.DType().Size(), dims, from, t.Shape().Dimensions, to, dims) })
	})
	if err != nil {
		return nil, fault.Of(fmt.Sprintf("cutting a tensor of shape %s", t.Shape()), err, "")
	}
	return out, nil
}

// sizesOf is the replicas' sizes of a ragged value, one vector a replica, for the programs that
// mask the padding.
func (v *deviceValue) sizes(ctx context.Context) (*PerReplica, error) {
	sizes := make([]any, v.strategy.replicas)
	for r := range sizes {
		row := make([]int32, len(v.shape))
		for d, n := range v.ragged[r] {
			row[d] = int32(n)
		}
		sizes[r] = row
	}
	return v.strategy.PerReplica(ctx, sizes, logical.Annotation{})
}
