package lowering

import (
	"errors"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Div returns lhs / rhs. An integer divided by 0 is -1, or the largest number of an unsigned dtype.
func (f *Function) Div(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addDivision("Div", stablehlo.Divide, lhs, rhs)
}

// Rem returns the remainder of lhs / rhs, with the sign of lhs. The remainder of an integer divided
// by 0 is lhs.
func (f *Function) Rem(lhs, rhs compute.Value) (compute.Value, error) {
	return f.addDivision("Rem", stablehlo.Remainder, lhs, rhs)
}

// addDivision adds a division or a remainder. If XLA knows the values of integer operands, it
// computes the result at compile time with the CPU's instruction, which aborts the process if the
// divisor is 0. addDivision therefore hides a divisor that XLA may know behind an optimization
// barrier. XLA also knows x*0 and the values of a loop that runs once. The barrier has two
// operands, because [TargetCPU] omits a barrier with one operand.
func (f *Function) addDivision(name string, op binaryOp, lhs, rhs compute.Value) (compute.Value, error) {
	return f.addOp(name, valueList(lhs, rhs), func(in []*stablehlo.Value) *stablehlo.Value {
		l, r := in[0], in[1]
		if name == "Rem" && l.Shape().DType.IsComplex() {
			panic(errors.New("complex numbers have no remainder"))
		}
		if l.Shape().DType == r.Shape().DType && l.Shape().DType.IsInt() &&
			!f.knownFacts(r).isSafeDivisor() && !f.knownFacts(l).isInput {
			hidden := must(stablehlo.OptimizationBarrier(l, r))
			l, r = hidden[0], hidden[1]
		}
		return must(op(broadcastPair(l, r)))
	})
}

// valueFacts describes what the compiler can know about a value.
type valueFacts struct {
	isNonzero bool // a constant without zeros
	isInput   bool // input data: the compiler cannot know it
}

func (k valueFacts) isSafeDivisor() bool { return k.isNonzero || k.isInput }

// knownFacts reports two facts about v: whether v is a constant without zeros, and whether v is
// input data. It follows ops that only move elements back to the constant or argument from which v
// originates.
func (f *Function) knownFacts(v *stablehlo.Value) valueFacts {
	name := v.String()
	for {
		s := f.definition(name)
		if s == nil {
			break
		}
		switch s.OpType.ToStableHLO() {
		case "stablehlo.constant":
			value, ok := s.Attributes[ir.ValueKey].(*ir.Dense)
			return valueFacts{isNonzero: ok && hasNoZero(value)}
		case "stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.slice", "stablehlo.reverse":
			name = s.Inputs[0].String()
		default:
			return valueFacts{}
		}
	}
	// An argument of a closure or of a called function may be a constant of the caller. A scalar
	// argument of the main function may be constant too: the replica number of a program with one
	// replica.
	i := slices.IndexFunc(f.builder.main.fn.Inputs, func(in *stablehlo.Value) bool { return in.String() == name })
	return valueFacts{isInput: i >= 0 && f.topLevel() == f.builder.main && !f.builder.main.fn.Inputs[i].Shape().IsScalar()}
}

// hasNoZero reports whether an integer constant is known to have no zero elements. It returns false
// for constants that are stored as bytes.
func hasNoZero(d *ir.Dense) bool {
	zero := func(n ir.Number) bool { return n.Value == 0 }
	return d.Splat != nil && !zero(*d.Splat) || len(d.Numbers) > 0 && !slices.ContainsFunc(d.Numbers, zero)
}
