package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// Bitcast reinterprets the bits of x. Where the element sizes differ, the last axis splits or
// joins: a smaller target gets a new last axis, a larger one takes up the last axis, which must
// have the right dimension. A Bool is a byte of 0 or 1, and any other byte than 0 is true; complex
// numbers have no bits.
func (f *Function) Bitcast(x compute.Value, target dtypes.DType) (compute.Value, error) {
	return f.op("Bitcast", with(x), func(in []*stablehlo.Value) (*stablehlo.Value, error) {
		if err := wantRepresentable(target); err != nil {
			return nil, err
		}
		source := in[0].Shape().DType
		switch {
		case source == target:
			return in[0], nil
		case source.IsComplex() || target.IsComplex():
			return nil, fmt.Errorf("the bits of %s cannot be taken for %s: split a complex number with Real and Imag, join one with Complex", source, target)
		case source == dtypes.Bool && target.Bits() == 8:
			return stablehlo.Convert(in[0], target)
		case target == dtypes.Bool && source.Bits() == 8:
			c := chain{fn: f.fn}
			return c.nonzero(in[0]), c.err
		case source == dtypes.Bool || target == dtypes.Bool:
			return nil, fmt.Errorf("the bits of %s cannot be taken for %s: Bool goes to and from integers of 8 bits only", source, target)
		case !source.IsPacked() && !target.IsPacked():
			return stablehlo.BitcastConvert(in[0], target)
		}
		return bitcastPacked(f.fn, in[0], target)
	})
}

// bitcastPacked is Bitcast from or to integers of less than a byte, in arithmetic: XLA folds a
// bitcast_convert of constants wrongly there (https://github.com/openxla/xla/issues/38964), and
// what it takes for a constant is not known here.
func bitcastPacked(fn *stablehlo.Function, x *stablehlo.Value, target dtypes.DType) (*stablehlo.Value, error) {
	c := chain{fn: fn}
	source := x.Shape().DType
	dims := x.Shape().Dimensions
	switch {
	case source.Bits() == target.Bits(): // of the two signs
		return c.convert(x, target), c.err
	case source.IsPacked() && target.IsPacked():
		if source.Bits() < target.Bits() && (len(dims) == 0 || dims[len(dims)-1] != target.Bits()/source.Bits()) {
			return nil, joinError(x.Shape(), target)
		}
		return repack(&c, x, target), c.err
	case target.IsPacked():
		bytes := c.do(func() (*stablehlo.Value, error) { return bitcast(x, dtypes.Uint8) })
		return c.reshape(split(&c, bytes, target), append(slices.Clone(dims), source.Bits()/target.Bits())...), c.err
	}
	per := target.Bits() / source.Bits()
	if len(dims) == 0 || dims[len(dims)-1] != per {
		return nil, joinError(x.Shape(), target)
	}
	outer := slices.Clone(dims[:len(dims)-1])
	perByte := 8 / source.Bits()
	bytes := join(&c, c.reshape(x, append(slices.Clone(outer), per/perByte, perByte)...), dtypes.Uint8)
	if target.Bits() == 8 {
		bytes = c.reshape(bytes, outer...)
	}
	return c.do(func() (*stablehlo.Value, error) { return bitcast(bytes, target) }), c.err
}

func joinError(s xshapes.Shape, target dtypes.DType) error {
	return fmt.Errorf("joining elements of %s into %s wants a last axis of dimension %d, got %v",
		s.DType, target, target.Bits()/s.DType.Bits(), s.Dimensions)
}

// bitcast is bitcast_convert, or nothing where the dtype is the same already.
func bitcast(x *stablehlo.Value, target dtypes.DType) (*stablehlo.Value, error) {
	if x.Shape().DType == target {
		return x, nil
	}
	return stablehlo.BitcastConvert(x, target)
}

// repack goes between packed types of different sizes.
func repack(c *chain, x *stablehlo.Value, target dtypes.DType) *stablehlo.Value {
	if x.Shape().DType.Bits() > target.Bits() {
		return split(c, x, target)
	}
	return join(c, x, target)
}

// split cuts each element into smaller integers along a new last axis, the low bits first.
func split(c *chain, x *stablehlo.Value, target dtypes.DType) *stablehlo.Value {
	if c.err != nil {
		return nil
	}
	s := x.Shape()
	wide := s.Clone()
	wide.DType = dtypes.Uint8
	wide.Dimensions = append(wide.Dimensions, s.DType.Bits()/target.Bits())
	values := c.broadcast(unsignedByte(c, x), wide, indices(s.Rank())...)
	return c.convert(mask(c, c.binary(stablehlo.ShiftRightLogical, values, places(c, wide, target.Bits())), target.Bits()), target)
}

// join puts the elements along the last axis together, the first into the low bits.
func join(c *chain, x *stablehlo.Value, target dtypes.DType) *stablehlo.Value {
	if c.err != nil {
		return nil
	}
	s := x.Shape()
	wide := s.Clone()
	wide.DType = dtypes.Uint8
	last := s.Rank() - 1
	shifted := c.binary(stablehlo.ShiftLeft, unsignedByte(c, x), places(c, wide, s.DType.Bits()))
	var sum *stablehlo.Value
	for i := range s.Dimensions[last] {
		starts, limits := make([]int, s.Rank()), slices.Clone(s.Dimensions)
		starts[last], limits[last] = i, i+1
		part := c.do(func() (*stablehlo.Value, error) { return stablehlo.Slice(shifted, starts, limits, nil) })
		if sum == nil {
			sum = part
			continue
		}
		sum = c.binary(stablehlo.Or, sum, part)
	}
	return c.convert(c.reshape(sum, s.Dimensions[:last]...), target)
}

// unsignedByte widens integers of at most a byte to Uint8, with zeros above their bits.
func unsignedByte(c *chain, x *stablehlo.Value) *stablehlo.Value {
	bits := x.Shape().DType.Bits()
	return mask(c, c.convert(x, dtypes.Uint8), bits)
}

// mask keeps the low bits of bytes.
func mask(c *chain, x *stablehlo.Value, bits int) *stablehlo.Value {
	if bits == 8 || c.err != nil {
		return x
	}
	return c.binary(stablehlo.And, x, c.do(func() (*stablehlo.Value, error) {
		return constant(c.fn, signed(1<<bits-1), xshapes.Make(dtypes.Uint8))
	}))
}

// places is how far each element along the last axis is shifted.
func places(c *chain, s xshapes.Shape, bits int) *stablehlo.Value {
	counted := c.do(func() (*stablehlo.Value, error) { return c.fn.Iota(s, s.Rank()-1) })
	return c.binary(stablehlo.Multiply, counted, c.do(func() (*stablehlo.Value, error) {
		return constant(c.fn, signed(bits), xshapes.Make(dtypes.Uint8))
	}))
}
