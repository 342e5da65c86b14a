package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// Bitcast reinterprets the bits of x as elements of dtype target. If target is smaller, the result
// has a new last axis with the parts of each element. If target is larger, the last axis of x is
// joined to one element; it must have the right dimension. A Bool is a byte that is 0 or 1;
// reinterpreted as Bool, each nonzero byte is true. Complex numbers return an error.
func (f *Function) Bitcast(x compute.Value, target dtypes.DType) (compute.Value, error) {
	return f.op("Bitcast", with(x), func(in []*stablehlo.Value) *stablehlo.Value {
		wantRepresentable(target)
		c, source := f.chain(), in[0].Shape().DType
		switch {
		case source == target:
			return in[0]
		case source.IsComplex() || target.IsComplex():
			panic(fmt.Errorf("the bits of %s cannot be taken for %s: split a complex number with Real and Imag, join one with Complex", source, target))
		case source == dtypes.Bool && target.Bits() == 8:
			return c.convert(in[0], target)
		case target == dtypes.Bool && source.Bits() == 8:
			return c.nonzero(in[0])
		case source == dtypes.Bool || target == dtypes.Bool:
			panic(fmt.Errorf("the bits of %s cannot be taken for %s: Bool goes to and from integers of 8 bits only", source, target))
		case !source.IsPacked() && !target.IsPacked():
			return c.bitcast(in[0], target)
		}
		return c.bitcastPacked(in[0], target)
	})
}

// bitcastPacked reinterprets integers of less than a byte by arithmetic. XLA folds a
// bitcast_convert of such constants wrongly (https://github.com/openxla/xla/issues/38964), and this
// package cannot tell which values XLA treats as constants.
func (c chain) bitcastPacked(x *stablehlo.Value, target dtypes.DType) *stablehlo.Value {
	source := x.Shape().DType
	dims := x.Shape().Dimensions
	per := target.Bits() / source.Bits()
	if per > 1 && (len(dims) == 0 || dims[len(dims)-1] != per) {
		panic(fmt.Errorf("joining elements of %s into %s wants a last axis of dimension %d, got %v", source, target, per, dims))
	}
	switch {
	case source.Bits() == target.Bits(): // differ only in signedness
		return c.convert(x, target)
	case source.IsPacked() && target.IsPacked() && per > 1:
		return c.join(x, target)
	case source.IsPacked() && target.IsPacked():
		return c.split(x, target)
	case target.IsPacked():
		return c.reshape(c.split(c.bitcast(x, dtypes.Uint8), target), append(slices.Clone(dims), source.Bits()/target.Bits())...)
	}
	outer := slices.Clone(dims[:len(dims)-1])
	perByte := 8 / source.Bits()
	bytes := c.join(c.reshape(x, append(slices.Clone(outer), per/perByte, perByte)...), dtypes.Uint8)
	if target.Bits() == 8 {
		bytes = c.reshape(bytes, outer...)
	}
	return c.bitcast(bytes, target)
}

// split splits each element into smaller integers along a new last axis, the low bits first.
func (c chain) split(x *stablehlo.Value, target dtypes.DType) *stablehlo.Value {
	s := x.Shape()
	wide := s.Clone()
	wide.DType = dtypes.Uint8
	wide.Dimensions = append(wide.Dimensions, s.DType.Bits()/target.Bits())
	values := c.broadcast(c.unsignedByte(x), wide, indices(s.Rank())...)
	return c.convert(c.mask(c.binary(stablehlo.ShiftRightLogical, values, c.places(wide, target.Bits())), target.Bits()), target)
}

// join packs the elements of the last axis into one element. The first element has the low bits.
func (c chain) join(x *stablehlo.Value, target dtypes.DType) *stablehlo.Value {
	s := x.Shape()
	wide := s.Clone()
	wide.DType = dtypes.Uint8
	last := s.Rank() - 1
	shifted := c.binary(stablehlo.ShiftLeft, c.unsignedByte(x), c.places(wide, s.DType.Bits()))
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

// unsignedByte widens integers of at most a byte to Uint8 and fills with zeros.
func (c chain) unsignedByte(x *stablehlo.Value) *stablehlo.Value {
	bits := x.Shape().DType.Bits()
	return c.mask(c.convert(x, dtypes.Uint8), bits)
}

// mask clears all but the low bits.
func (c chain) mask(x *stablehlo.Value, bits int) *stablehlo.Value {
	if bits == 8 {
		return x
	}
	return c.binary(stablehlo.And, x, c.number(dtypes.Uint8, signed(1<<bits-1)))
}

// places returns the shift of each element along the last axis.
func (c chain) places(s xshapes.Shape, bits int) *stablehlo.Value {
	counted := must(c.fn.Iota(s, s.Rank()-1))
	return c.binary(stablehlo.Multiply, counted, c.number(dtypes.Uint8, signed(bits)))
}
