package lowering

import (
	"errors"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Div returns lhs / rhs. An integer division by 0 is -1, which is all bits set for unsigned
// integers.
func (f *Function) Div(lhs, rhs compute.Value) (compute.Value, error) {
	return f.divide("Div", stablehlo.Divide, lhs, rhs)
}

// Rem returns the remainder of lhs / rhs, with the sign of lhs. The integer remainder of a division
// by 0 is lhs.
func (f *Function) Rem(lhs, rhs compute.Value) (compute.Value, error) {
	return f.divide("Rem", stablehlo.Remainder, lhs, rhs)
}

// divide adds a division. XLA folds integer divisions of known values with the host's instruction,
// which aborts the process if the divisor is 0. A divisor that XLA may know is therefore hidden
// behind a barrier. Besides constants, XLA also knows x*0 and the values of a loop that runs once.
// The barrier has two operands, because [TargetCPU] omits a barrier with one operand.
func (f *Function) divide(name string, op binaryOp, lhs, rhs compute.Value) (compute.Value, error) {
	return f.op(name, with(lhs, rhs), func(in []*stablehlo.Value) *stablehlo.Value {
		l, r := in[0], in[1]
		if name == "Rem" && l.Shape().DType.IsComplex() {
			panic(errors.New("complex numbers have no remainder"))
		}
		if l.Shape().DType == r.Shape().DType && l.Shape().DType.IsInt() && !f.folds(r).safe() && !f.folds(l).runtime {
			hidden := must(stablehlo.OptimizationBarrier(l, r))
			l, r = hidden[0], hidden[1]
		}
		return must(op(broadcastPair(l, r)))
	})
}

// certainty describes the facts about a value that no compiler optimization changes.
type certainty struct {
	nonzero bool // a constant without zeros
	runtime bool // input data: the compiler cannot know it
}

func (k certainty) safe() bool { return k.nonzero || k.runtime }

// folds follows v through ops that only move elements, to the constant or the argument that has the
// elements.
func (f *Function) folds(v *stablehlo.Value) certainty {
	name := v.String()
	for {
		s := f.definition(name)
		if s == nil {
			break
		}
		switch s.OpType.ToStableHLO() {
		case "stablehlo.constant":
			value, ok := s.Attributes[ir.ValueKey].(*ir.Dense)
			return certainty{nonzero: ok && withoutZero(value)}
		case "stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.slice", "stablehlo.reverse":
			name = s.Inputs[0].String()
		default:
			return certainty{}
		}
	}
	// An argument of a closure or of a called function may be a constant of the caller. A scalar
	// argument of the main function may be constant too: the replica number of a program with one
	// replica.
	i := slices.IndexFunc(f.builder.main.fn.Inputs, func(in *stablehlo.Value) bool { return in.String() == name })
	return certainty{runtime: i >= 0 && f.top() == f.builder.main && !f.builder.main.fn.Inputs[i].Shape().IsScalar()}
}

// withoutZero reports whether an integer constant is known to contain no 0. It does not inspect
// constants that are stored as bytes.
func withoutZero(d *ir.Dense) bool {
	zero := func(n ir.Number) bool { return n.Value == 0 }
	return d.Splat != nil && !zero(*d.Splat) || len(d.Numbers) > 0 && !slices.ContainsFunc(d.Numbers, zero)
}
