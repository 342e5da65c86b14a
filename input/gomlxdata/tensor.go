package gomlxdata

import (
	"fmt"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/input"
)

// FromTensor copies a GoMLX tensor to a host tensor of the same kind and dimensions. A tensor that lives on a device is
// brought to the host by GoMLX first. Types that host tensors do not have, such as 4-bit integers, are errors.
func FromTensor(t *tensors.Tensor) (input.Tensor, error) {
	if err := t.CheckValid(); err != nil {
		return input.Tensor{}, fmt.Errorf("gomlxdata: %w", err)
	}
	shape := t.Shape()
	kind, ok := input.KindOf(shape.DType)
	if !ok {
		return input.Tensor{}, fmt.Errorf("gomlxdata: a host tensor cannot hold %s: convert it to another type", shape)
	}
	if shape.Size() == 0 {
		return input.Zeros(kind, shape.Dimensions...)
	}
	var out input.Tensor
	var err error
	access := t.ConstBytes(func(data []byte) { out, err = input.FromBytes(kind, data, shape.Dimensions...) })
	if access != nil {
		return input.Tensor{}, fmt.Errorf("gomlxdata: %w", access)
	}
	return out, err
}

// ToTensor copies a host tensor to a GoMLX tensor, which the caller owns. Strings are errors.
func ToTensor(t input.Tensor) (*tensors.Tensor, error) {
	dtype, ok := t.Kind().DType()
	if !ok {
		return nil, fmt.Errorf("gomlxdata: a GoMLX tensor cannot hold %v: turn it into numbers with Map", t)
	}
	out := tensors.FromShape(shapes.Make(dtype, t.Dims()...))
	if t.Len() == 0 {
		return out, nil
	}
	if err := out.MutableBytes(func(data []byte) { copy(data, t.Bytes()) }); err != nil {
		return nil, fmt.Errorf("gomlxdata: %w", err)
	}
	return out, nil
}
