package spmd

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Compilers do not implement every collective for every dtype, or implement it wrongly: the CPU
// compiler corrupts memory for integers of less than a byte, and libtpu rejects sums of Uint64 and
// of complex numbers and the maximum of 64-bit numbers. Such elements are encoded as elements of
// other dtypes before the collective and decoded after it. All encodings are exact.

// transfer is the kind of a collective: whether and how it combines elements.
type transfer int

const (
	move     transfer = iota // no element is combined with another one
	moveOne                  // an all-reduce to which all devices but one pass zeros: see Only
	sum                      // an all-reduce
	scatter                  // a reduce-scatter of a sum
	greatest                 // an all-reduce
	least                    // an all-reduce
)

// transferOf returns the transfer of an all-reduce.
func transferOf(r Reduction) transfer {
	return map[Reduction]transfer{Sum: sum, Max: greatest, Min: least, Only: moveOne}[r]
}

// collectiveMark is the mark of a collective.
type collectiveMark interface {
	mark
	// transfer returns the kind of the collective. It returns false where the mark
	// writes no collective, for example where there is only one device.
	transfer(w *writer) (transfer, bool)
}

func (c reduced) transfer(w *writer) (transfer, bool)   { return transferOf(c.by), w.replicas > 1 }
func (c gathered) transfer(w *writer) (transfer, bool)  { return move, w.replicas > 1 }
func (c scattered) transfer(w *writer) (transfer, bool) { return scatter, w.replicas > 1 }

func (m amongMark) transfer(w *writer) (transfer, bool) {
	communicates := !w.single() && len(m.axes) > 0
	switch op := m.op.(type) {
	case region.AllReduce:
		return transferOf(op.By), communicates
	case region.ReduceScatter:
		return scatter, communicates
	}
	return move, communicates
}

// exchange is a collective under construction.
type exchange struct {
	w        *writer
	mark     mark
	transfer transfer
	out      *ir.Value
	list     []*ir.Statement
}

// collectives returns the statements of a collective, with the encoding and decoding of elements
// that its dtype requires.
func (w *writer) collectives(m collectiveMark, out, in *ir.Value) []*ir.Statement {
	t, communicates := m.transfer(w)
	e := &exchange{w: w, mark: m, transfer: t, out: out}
	if !communicates || out.Type.Empty() || !e.encodes(in.Type.DType) {
		return []*ir.Statement{m.write(w, out, in)}
	}
	e.send(in)
	e.list[len(e.list)-1].Results[0] = out // in place of the last value of the decoding
	return e.list
}

// encodes reports whether elements of a dtype are encoded.
func (e *exchange) encodes(d dtypes.DType) bool {
	switch e.transfer {
	case move:
		// libtpu gathers Int4 correctly, in half the bytes of Int8.
		return d.IsPacked() && e.w.trace.opts.Target == lowering.TargetCPU
	case moveOne:
		return d.IsPacked() || d.IsComplex() || d.IsFloat() || d == dtypes.Uint64
	case sum:
		return d.IsPacked() || d.IsComplex() || d == dtypes.Uint64
	case scatter:
		return d.IsPacked() || d.IsComplex() || d == dtypes.Uint64 || d == dtypes.Float64
	}
	return d.IsPacked() || d.Bits() == 64 && !d.IsComplex()
}

// send adds the collective of a value and returns its result.
func (e *exchange) send(in *ir.Value) *ir.Value {
	d := in.Type.DType
	switch {
	case !e.encodes(d):
		return e.collective(e.mark, in, e.out.Type.Dims)
	case d.IsPacked():
		return e.sendAsBytes(in)
	case d.IsComplex():
		re, im := e.op("stablehlo.real", d.RealDType(), in), e.op("stablehlo.imag", d.RealDType(), in)
		return e.op("stablehlo.complex", d, e.send(re), e.send(im))
	case e.transfer == greatest || e.transfer == least:
		return e.sendExtreme(in)
	case e.transfer == scatter && d == dtypes.Float64:
		return e.sendParts(in)
	}
	// The bits are summed as integers. A float sum with zeros would change -0 to +0, subnormal
	// numbers to zero, and the bits of a NaN.
	return e.bitcast(e.send(e.bitcast(in, integers[d.Bits()])), d)
}

var integers = map[int]dtypes.DType{16: dtypes.Int16, 32: dtypes.Int32, 64: dtypes.Int64}

// sendAsBytes sends integers of less than a byte as integers of a byte. A sum wraps around.
func (e *exchange) sendAsBytes(in *ir.Value) *ir.Value {
	d, wide := in.Type.DType, widened(in.Type.DType)
	out := e.send(e.op("stablehlo.convert", wide, in))
	if e.transfer == sum || e.transfer == scatter {
		unused := e.number(out, ir.Integer(8-d.Bits()))
		back := "stablehlo.shift_right_arithmetic"
		if wide.IsUnsigned() {
			back = "stablehlo.shift_right_logical"
		}
		out = e.op(back, wide, e.op("stablehlo.shift_left", wide, out, unused), unused)
	}
	return e.op("stablehlo.convert", d, out)
}

// widened returns the dtype of a byte that has the values of a dtype of less than a byte.
func widened(d dtypes.DType) dtypes.DType {
	if d == dtypes.Uint4 || d == dtypes.Uint2 {
		return dtypes.Uint8
	}
	return dtypes.Int8
}

// sendExtreme computes the maximum or minimum of 64-bit numbers in two steps: first of the high 32
// bits, then of the low 32 bits on the devices that have these high bits.
func (e *exchange) sendExtreme(in *ir.Value) *ir.Value {
	d := in.Type.DType
	if d == dtypes.Float64 {
		return e.bitcast(e.order(e.sendExtreme(e.order(e.bitcast(e.signNaN(in), dtypes.Int64)))), d)
	}
	half, shift := dtypes.Int32, "stablehlo.shift_right_arithmetic"
	if d == dtypes.Uint64 {
		half, shift = dtypes.Uint32, "stablehlo.shift_right_logical"
	}
	bits := e.number(in, ir.Integer(32))
	high := e.op("stablehlo.convert", half, e.op(shift, d, in, bits))
	low := e.op("stablehlo.convert", dtypes.Uint32, e.op("stablehlo.and", d, in, e.number(in, ir.Integer(math.MaxUint32))))
	highest := e.send(high)
	last := 0
	if e.transfer == least {
		last = math.MaxUint32
	}
	low = e.op("stablehlo.select", dtypes.Uint32, e.compared("EQ", high, highest), low, e.number(low, ir.Integer(last)))
	lowest := e.send(low)
	return e.op("stablehlo.or", d, e.op("stablehlo.shift_left", d, e.op("stablehlo.convert", d, highest), bits), e.op("stablehlo.convert", d, lowest))
}

// order maps the bits of floats to integers in the order of the floats. It is its own inverse.
func (e *exchange) order(bits *ir.Value) *ir.Value {
	d := bits.Type.DType
	sign := e.op("stablehlo.shift_right_arithmetic", d, bits, e.number(bits, ir.Integer(63)))
	return e.op("stablehlo.xor", d, bits, e.op("stablehlo.shift_right_logical", d, sign, e.number(bits, ir.Integer(1))))
}

// signNaN sets the sign of NaNs so that a maximum or minimum returns them.
func (e *exchange) signNaN(in *ir.Value) *ir.Value {
	nan := "0x7FF8000000000000"
	if e.transfer == least {
		nan = "0xFFF8000000000000"
	}
	return e.op("stablehlo.select", in.Type.DType, e.compared("NE", in, in), e.number(in, ir.Float(nan, math.NaN())), in)
}

// sendParts sends each device its slice of the value, and sums the received slices.
func (e *exchange) sendParts(in *ir.Value) *ir.Value {
	axis, m := 0, mark(nil)
	switch of := e.mark.(type) {
	case scattered:
		axis, m = of.axis, dealt{of.axis}
	case amongMark:
		axis = of.op.(region.ReduceScatter).Dim
		m = amongMark{of.axes, region.AllToAll{Axes: of.axes, Split: axis, Concat: axis}}
	}
	d, part := in.Type.DType, e.out.Type.Dims
	parts := append(append(append([]int(nil), part[:axis]...), in.Type.Dims[axis]/part[axis]), part[axis:]...)
	cut := e.value(d, parts)
	e.list = append(e.list, short("stablehlo.reshape", cut, in))
	received := e.collective(m, cut, parts)
	zero, total := named("zero_"+received.Name, ir.Tensor(d)), e.value(d, part)
	s := inline("stablehlo.reduce", total, received, zero).With("dimensions", ir.Ints{axis})
	s.Regions = []*ir.Region{combiner(total, "add")}
	e.list = append(e.list, constant(zero, ir.Zero(d)), s)
	return total
}

// dealt is the mark of an all-to-all over the replicas in one dimension.
type dealt struct{ axis int }

func (m dealt) write(w *writer, out, in *ir.Value) *ir.Statement {
	return w.allToAll(out, in, replicaGroups, region.AllToAll{Split: m.axis, Concat: m.axis}, w.replicas)
}

func (e *exchange) value(d dtypes.DType, dims []int) *ir.Value {
	v := named(fmt.Sprintf("x%d_%s", len(e.list), e.out.Name), ir.Tensor(d, dims...))
	v.Origin = e.out.Origin
	return v
}

// collective adds a collective whose result has the given dimensions.
func (e *exchange) collective(m mark, in *ir.Value, dims []int) *ir.Value {
	out := e.value(in.Type.DType, dims)
	e.list = append(e.list, m.write(e.w, out, in))
	return out
}

// op adds an op of operands of equal dimensions.
func (e *exchange) op(name string, d dtypes.DType, in ...*ir.Value) *ir.Value {
	out := e.value(d, in[0].Type.Dims)
	e.list = append(e.list, inline(name, out, in...))
	return out
}

func (e *exchange) bitcast(in *ir.Value, d dtypes.DType) *ir.Value {
	return e.op("stablehlo.bitcast_convert", d, in)
}

func (e *exchange) compared(direction string, a, b *ir.Value) *ir.Value {
	out := e.value(dtypes.Bool, a.Type.Dims)
	e.list = append(e.list, compare(direction, out, a, b))
	return out
}

// number adds a constant of the type of another value.
func (e *exchange) number(like *ir.Value, n ir.Number) *ir.Value {
	out := e.value(like.Type.DType, like.Type.Dims)
	e.list = append(e.list, constant(out, n))
	return out
}
