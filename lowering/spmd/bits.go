package spmd

import (
	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// What one device alone has comes to the others by an all-reduce, to which they give zeros. Floats
// cross as the integers that have their bits: a sum of floats would make +0 of -0, zeros of numbers
// below the normal ones, and another NaN of a NaN.

// mover is the mark of a collective that may move a value instead of combining several.
type mover interface {
	moves(w *writer) bool
}

func (c reduced) moves(w *writer) bool { return c.by == Only && w.replicas > 1 }

func (m amongMark) moves(w *writer) bool {
	op, ok := m.op.(region.AllReduce)
	return ok && op.By == region.Only && !w.single() && len(m.axes) > 0
}

// moved makes out of in, which one device has and of which the others have zeros. reduce is the
// all-reduce of integers and booleans.
func (w *writer) moved(out, in *ir.Value, reduce func(out, in *ir.Value) *ir.Statement) []*ir.Statement {
	d := in.Type.DType
	of := func(name string, d dtypes.DType) *ir.Value {
		return named(name+out.Name, ir.Tensor(d, in.Type.Dims...))
	}
	switch {
	case in.Type.Empty():
		return []*ir.Statement{empty(out)}
	case d.IsComplex():
		var all []*ir.Statement
		parts := make([]*ir.Value, 2)
		for i, part := range []string{"real", "imag"} {
			own := of(part+"_of_", d.RealDType())
			parts[i] = of(part+"_", d.RealDType())
			all = append(append(all, inline("stablehlo."+part, own, in)), w.moved(parts[i], own, reduce)...)
		}
		return append(all, inline("stablehlo.complex", out, parts...))
	case d.IsFloat():
		bits, all := of("bits_of_", integers[d.Bits()]), of("bits_", integers[d.Bits()])
		return []*ir.Statement{inline("stablehlo.bitcast_convert", bits, in), reduce(all, bits), inline("stablehlo.bitcast_convert", out, all)}
	}
	return []*ir.Statement{reduce(out, in)}
}

var integers = map[int]dtypes.DType{16: dtypes.Int16, 32: dtypes.Int32, 64: dtypes.Int64}
