package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// Bitcast reinterprets the bits of x as elements of the target dtype. A smaller target adds a last
// axis, which contains the parts of each element. A larger target combines the elements of the last
// axis into one; the axis must have the matching size. From 8-bit integers to Bool, each nonzero
// byte becomes true. Complex dtypes are an error.
func (f *Function) Bitcast(x compute.Value, target dtypes.DType) (compute.Value, error) {
	return f.addOp("Bitcast", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		requireSupported(target)
		c, source := f.opBuilder(), in[0].Shape().DType
		switch {
		case source == target:
			return in[0]
		case source.IsComplex() || target.IsComplex():
			panic(fmt.Errorf(
				"the bits of %s cannot be taken for %s: split a complex number with Real and Imag, join one with Complex", source,
				target))
		case source == dtypes.Bool && target.Bits() == 8:
			return c.convert(in[0], target)
		case target == dtypes.Bool && source.Bits() == 8:
			return c.nonzero(in[0])
		case source == dtypes.Bool || target == dtypes.Bool:
			panic(fmt.Errorf("the bits of %s cannot be taken for %s: Bool goes to and from integers of 8 bits only", source,
				target))
		case !source.IsPacked() && !target.IsPacked():
			return c.bitcast(in[0], target)
		}
		return c.bitcastPacked(in[0], target)
	})
}

// bitcastPacked reinterprets integers of less than a byte by shifts and masks. It does not use
// bitcast_convert, which XLA folds wrongly for constants
// (https://github.com/openxla/xla/issues/38964).
func (c opBuilder) bitcastPacked(x *stablehlo.Value, target dtypes.DType) *stablehlo.Value {
	source := x.Shape().DType
	dims := x.Shape().Dimensions
	per := target.Bits() / source.Bits()
	if per > 1 && (len(dims) == 0 || dims[len(dims)-1] != per) {
		panic(fmt.Errorf("joining elements of %s into %s wants a last axis of dimension %d, got %v", source, target, per,
			dims))
	}
	switch {
	case source.Bits() == target.Bits(): // differ only in signedness
		return c.convert(x, target)
	case source.IsPacked() && target.IsPacked() && per > 1:
		return c.packIntegers(x, target)
	case source.IsPacked() && target.IsPacked():
		return c.unpackIntegers(x, target)
	case target.IsPacked():
		return c.reshape(c.unpackIntegers(c.bitcast(x, dtypes.Uint8), target), append(slices.Clone(dims),
			source.Bits()/target.Bits())...)
	}
	outer := slices.Clone(dims[:len(dims)-1])
	perByte := 8 / source.Bits()
	bytes := c.packIntegers(c.reshape(x, append(slices.Clone(outer), per/perByte, perByte)...), dtypes.Uint8)
	if target.Bits() == 8 {
		bytes = c.reshape(bytes, outer...)
	}
	return c.bitcast(bytes, target)
}

// unpackIntegers splits each element into smaller integers along a new last axis, low bits first.
func (c opBuilder) unpackIntegers(x *stablehlo.Value, target dtypes.DType) *stablehlo.Value {
	s := x.Shape()
	wide := s.Clone()
	wide.DType = dtypes.Uint8
	wide.Dimensions = append(wide.Dimensions, s.DType.Bits()/target.Bits())
	values := c.broadcast(c.toUnsignedBytes(x), wide, indices(s.Rank())...)
	return c.convert(c.keepLowBits(c.binary(stablehlo.ShiftRightLogical, values, c.bitShifts(wide, target.Bits())),
		target.Bits()), target)
}

// packIntegers combines the elements of the last axis into one integer, the first element in the
// low bits.
func (c opBuilder) packIntegers(x *stablehlo.Value, target dtypes.DType) *stablehlo.Value {
	s := x.Shape()
	wide := s.Clone()
	wide.DType = dtypes.Uint8
	last := s.Rank() - 1
	shifted := c.binary(stablehlo.ShiftLeft, c.toUnsignedBytes(x), c.bitShifts(wide, s.DType.Bits()))
	var sum *stablehlo.Value
	for i := range s.Dimensions[last] {
		starts, limits := make([]int, s.Rank()), slices.Clone(s.Dimensions)
		starts[last], limits[last] = i, i+1
		part := c.slice(shifted, starts, limits)
		if sum == nil {
			sum = part
			continue
		}
		sum = c.binary(stablehlo.Or, sum, part)
	}
	return c.convert(c.reshape(sum, s.Dimensions[:last]...), target)
}

// toUnsignedBytes converts integers of at most 8 bits to Uint8 without sign extension.
func (c opBuilder) toUnsignedBytes(x *stablehlo.Value) *stablehlo.Value {
	bits := x.Shape().DType.Bits()
	return c.keepLowBits(c.convert(x, dtypes.Uint8), bits)
}

func (c opBuilder) keepLowBits(x *stablehlo.Value, bits int) *stablehlo.Value {
	if bits == 8 {
		return x
	}
	return c.binary(stablehlo.And, x, c.constant(dtypes.Uint8, signedNumber(1<<bits-1)))
}

// bitShifts returns a tensor of shape s. Each element is bits multiplied by the index of the
// element along the last axis.
func (c opBuilder) bitShifts(s xshapes.Shape, bits int) *stablehlo.Value {
	counted := must(c.fn.Iota(s, s.Rank()-1))
	return c.binary(stablehlo.Multiply, counted, c.constant(dtypes.Uint8, signedNumber(bits)))
}
