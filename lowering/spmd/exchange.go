package spmd

import (
	"errors"
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Compilers do not implement every collective for every dtype. The CPU compiler corrupts memory for
// integers of less than a byte. libtpu rejects sums of Uint64 and complex numbers, and the maximum
// of 64-bit numbers. Such elements are encoded in other dtypes before the collective and decoded
// after it. All encodings are exact.

type encodedCollective struct {
	assembler  *assembler
	collective collectivePlaceholder
	// reduction is valid if reduces is set.
	reduction  Reduction
	reduces    bool
	out        *ir.Value
	statements []*ir.Statement
	err        error
}

// expand returns the statements of a collective. If compilers do not support the dtype, the
// statements also encode and decode the elements.
func (m collectivePlaceholder) expand(w *assembler, out, in *ir.Value) ([]*ir.Statement, error) {
	e := &encodedCollective{assembler: w, collective: m, out: out}
	e.reduction, e.reduces = m.op.Reduces()
	if len(m.axes) == 0 || out.Type.IsEmpty() || !e.needsEncoding(in.Type.DType) {
		s, err := w.collectiveStatement(m, out, in)
		return []*ir.Statement{s}, err
	}
	e.emit(in)
	e.statements[len(e.statements)-1].Results[0] = out // instead of the last value of the decoding
	return e.statements, e.err
}

func (e *encodedCollective) needsEncoding(d dtypes.DType) bool {
	switch {
	case !e.reduces:
		// libtpu gathers Int4 correctly, in half the bytes of Int8.
		return d.IsPacked() && e.assembler.trace.opts.Target == lowering.TargetCPU
	case e.reduction == Broadcast:
		return d.IsPacked() || d.IsComplex() || d.IsFloat() || d == dtypes.Uint64
	case e.reduction == Sum:
		return d.IsPacked() || d.IsComplex() || d == dtypes.Uint64 || e.isReduceScatter() && d == dtypes.Float64
	case e.reduction == Max || e.reduction == Min:
		return d.IsPacked() || d.Bits() == 64 && !d.IsComplex()
	}
	return d.IsPacked()
}

func (e *encodedCollective) isReduceScatter() bool {
	_, ok := e.collective.op.(region.ReduceScatter)
	return ok
}

// emit adds a collective with the operand in and returns its result. For an unsupported dtype it
// also adds the ops that encode and decode the elements.
func (e *encodedCollective) emit(in *ir.Value) *ir.Value {
	d := in.Type.DType
	switch {
	case !e.needsEncoding(d):
		return e.emitCollective(e.collective, in, e.out.Type.Dims)
	case d.IsPacked():
		return e.emitAsBytes(in)
	case d.IsComplex():
		re, im := e.addOp("stablehlo.real", d.RealDType(), in), e.addOp("stablehlo.imag", d.RealDType(), in)
		return e.addOp("stablehlo.complex", d, e.emit(re), e.emit(im))
	case e.reduction == Max || e.reduction == Min:
		return e.emitInHalves(in)
	case e.isReduceScatter() && d == dtypes.Float64:
		return e.emitAsAllToAll(in)
	}
	// The bits are summed as integers. A float sum with zeros would change -0 to +0, subnormal
	// numbers to zero, and the bits of a NaN.
	return e.addBitcast(e.emit(e.addBitcast(in, intDTypes[d.Bits()])), d)
}

var intDTypes = map[int]dtypes.DType{16: dtypes.Int16, 32: dtypes.Int32, 64: dtypes.Int64}

// emitAsBytes sends integers of less than a byte as bytes. Results that exceed the range of the
// dtype wrap around.
func (e *encodedCollective) emitAsBytes(in *ir.Value) *ir.Value {
	d, wide := in.Type.DType, byteDType(in.Type.DType)
	out := e.emit(e.addOp("stablehlo.convert", wide, in))
	if e.reduces && e.reduction != Max && e.reduction != Min && e.reduction != Broadcast {
		unused := e.addConstant(out, ir.Integer(8-d.Bits()))
		back := "stablehlo.shift_right_arithmetic"
		if wide.IsUnsigned() {
			back = "stablehlo.shift_right_logical"
		}
		out = e.addOp(back, wide, e.addOp("stablehlo.shift_left", wide, out, unused), unused)
	}
	return e.addOp("stablehlo.convert", d, out)
}

// byteDType returns the 8-bit dtype with the signedness of an integer dtype of less than a byte.
func byteDType(d dtypes.DType) dtypes.DType {
	if d == dtypes.Uint4 || d == dtypes.Uint2 {
		return dtypes.Uint8
	}
	return dtypes.Int8
}

// emitInHalves computes the maximum or minimum of 64-bit numbers in two steps: first of the high 32
// bits, then of the low 32 bits among devices with these high bits.
func (e *encodedCollective) emitInHalves(in *ir.Value) *ir.Value {
	d := in.Type.DType
	if d == dtypes.Float64 {
		return e.addBitcast(e.orderedBits(e.emitInHalves(e.orderedBits(e.addBitcast(e.setNaNSign(in), dtypes.Int64)))), d)
	}
	half, shift := dtypes.Int32, "stablehlo.shift_right_arithmetic"
	if d == dtypes.Uint64 {
		half, shift = dtypes.Uint32, "stablehlo.shift_right_logical"
	}
	bits := e.addConstant(in, ir.Integer(32))
	high := e.addOp("stablehlo.convert", half, e.addOp(shift, d, in, bits))
	low := e.addOp("stablehlo.convert", dtypes.Uint32, e.addOp("stablehlo.and", d, in, e.addConstant(in,
		ir.Integer(math.MaxUint32))))
	highest := e.emit(high)
	last := 0
	if e.reduction == Min {
		last = math.MaxUint32
	}
	low = e.addOp("stablehlo.select", dtypes.Uint32, e.addCompare("EQ", high, highest), low,
		e.addConstant(low, ir.Integer(last)))
	lowest := e.emit(low)
	return e.addOp("stablehlo.or", d, e.addOp("stablehlo.shift_left", d, e.addOp("stablehlo.convert", d, highest),
		bits), e.addOp("stablehlo.convert", d, lowest))
}

// orderedBits maps the bits of floats to integers in the same order. It is its own inverse.
func (e *encodedCollective) orderedBits(bits *ir.Value) *ir.Value {
	d := bits.Type.DType
	sign := e.addOp("stablehlo.shift_right_arithmetic", d, bits, e.addConstant(bits, ir.Integer(63)))
	return e.addOp("stablehlo.xor", d, bits, e.addOp("stablehlo.shift_right_logical", d, sign,
		e.addConstant(bits, ir.Integer(1))))
}

// setNaNSign sets the sign of each NaN so that the maximum or minimum is NaN.
func (e *encodedCollective) setNaNSign(in *ir.Value) *ir.Value {
	nan := "0x7FF8000000000000"
	if e.reduction == Min {
		nan = "0xFFF8000000000000"
	}
	return e.addOp("stablehlo.select", in.Type.DType, e.addCompare("NE", in, in),
		e.addConstant(in, ir.Float(nan, math.NaN())), in)
}

// emitAsAllToAll computes a reduce-scatter by an all-to-all and a local sum of the received slices.
func (e *encodedCollective) emitAsAllToAll(in *ir.Value) *ir.Value {
	m := e.collective
	axis := m.op.(region.ReduceScatter).Dim
	m.op = region.AllToAll{Axes: m.op.AxisNames(), Split: axis, Concat: axis}
	d, part := in.Type.DType, e.out.Type.Dims
	parts := append(append(append([]int(nil), part[:axis]...), in.Type.Dims[axis]/part[axis]), part[axis:]...)
	cut := e.newValue(d, parts)
	e.statements = append(e.statements, customOp("stablehlo.reshape", cut, in))
	received := e.emitCollective(m, cut, parts)
	zero, total := newValue("zero_"+received.Name, ir.TensorType(d)), e.newValue(d, part)
	s := genericOp("stablehlo.reduce", total, received, zero).AddAttribute("dimensions", ir.Ints{axis})
	s.Regions = []*ir.Region{combinerRegion(total, "add")}
	e.statements = append(e.statements, constantOp(zero, ir.Zero(d)), s)
	return total
}

func (e *encodedCollective) newValue(d dtypes.DType, dims []int) *ir.Value {
	v := newValue(fmt.Sprintf("x%d_%s", len(e.statements), e.out.Name), ir.TensorType(d, dims...))
	v.Origin = e.out.Origin
	return v
}

func (e *encodedCollective) emitCollective(m collectivePlaceholder, in *ir.Value, dims []int) *ir.Value {
	out := e.newValue(in.Type.DType, dims)
	s, err := e.assembler.collectiveStatement(m, out, in)
	e.statements, e.err = append(e.statements, s), errors.Join(e.err, err)
	return out
}

// addOp adds an op whose operands and result have equal dimensions.
func (e *encodedCollective) addOp(name string, d dtypes.DType, in ...*ir.Value) *ir.Value {
	out := e.newValue(d, in[0].Type.Dims)
	e.statements = append(e.statements, genericOp(name, out, in...))
	return out
}

func (e *encodedCollective) addBitcast(in *ir.Value, d dtypes.DType) *ir.Value {
	return e.addOp("stablehlo.bitcast_convert", d, in)
}

func (e *encodedCollective) addCompare(direction string, a, b *ir.Value) *ir.Value {
	out := e.newValue(dtypes.Bool, a.Type.Dims)
	e.statements = append(e.statements, compareOp(direction, out, a, b))
	return out
}

// addConstant adds a constant with the type of like and equal elements.
func (e *encodedCollective) addConstant(like *ir.Value, n ir.Number) *ir.Value {
	out := e.newValue(like.Type.DType, like.Type.Dims)
	e.statements = append(e.statements, constantOp(out, n))
	return out
}
