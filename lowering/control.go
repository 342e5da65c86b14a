package lowering

import (
	"errors"
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// useClosure returns g as a closure that an op of f can call. It panics unless g is a finished
// closure of f or of a function that contains f. GoMLX creates every closure in main, even if the
// closure is used in another function.
func (f *Function) useClosure(role string, g compute.Function) *Function {
	c, ok := g.(*Function)
	switch {
	case !ok || c == nil:
		panic(fmt.Errorf("the %s is a %T, not a function of this backend", role, g))
	case c.parent == nil || !f.isWithin(c.parent):
		panic(fmt.Errorf("the %s is not a closure of this function", role))
	case c.outputs == nil:
		panic(fmt.Errorf("the %s has no Return", role))
	}
	if c.parent != f {
		fn, moved := *c.fn, *c
		fn.Parent, moved.fn, moved.parent = f.fn, &fn, f
		return &moved
	}
	return c
}

// isWithin reports whether f is outer or is nested in outer.
func (f *Function) isWithin(outer *Function) bool {
	for ; f != nil; f = f.parent {
		if f == outer {
			return true
		}
	}
	return false
}

// If runs the closure onTrue or onFalse, depending on the Bool scalar pred. The closures have no
// parameters and return values of the same shapes.
func (f *Function) If(pred compute.Value, onTrue, onFalse compute.Function) ([]compute.Value, error) {
	return f.addOps("If", valueList(pred), func(in []*stablehlo.Value) []*stablehlo.Value {
		return must(stablehlo.If(in[0], f.useClosure("true branch", onTrue).fn, f.useClosure("false branch", onFalse).fn))
	})
}

// While runs the closure body repeatedly, as long as the closure cond returns true. Both closures
// receive the state, and body returns the next state.
func (f *Function) While(cond, body compute.Function, state ...compute.Value) ([]compute.Value, error) {
	return f.addOps("While", state, func(in []*stablehlo.Value) []*stablehlo.Value {
		c, b := f.useClosure("condition", cond), f.useClosure("body", body)
		return must(stablehlo.While(c.fn, b.fn, f.hideTripCount(b, in)...))
	})
}

// Sort sorts tensors of the same shape along axis by the order of comparator. The elements of all
// operands are moved together. With TargetCPU every sort is stable.
func (f *Function) Sort(comparator compute.Function, axis int, stable bool, operands ...compute.Value) ([]compute.Value,
	error) {
	return f.addOps("Sort", operands, func(in []*stablehlo.Value) []*stablehlo.Value {
		c := f.useClosure("comparator", comparator)
		if len(in) == 0 {
			panic(errors.New("at least one tensor is needed"))
		}
		axis := normalizeAxis(axis, in[0].Shape().Rank())
		return must(stablehlo.Sort(c.fn, axis, stable || f.builder.backend.opts.Target == TargetCPU, in...))
	})
}

// maxCallDepth is the maximum depth of nested calls. XLA's compilers recurse over calls and abort
// on thousands of nested calls.
const maxCallDepth = 256

// maxInlined is the maximum number of calls in a function after inlining. Compilers inline all
// calls and do not finish with more.
const maxInlined = 1 << 20

// Call calls another top-level function of the same computation. Calls can be nested 256 deep.
func (f *Function) Call(target compute.Function, operands ...compute.Value) ([]compute.Value, error) {
	return f.addOps("Call", operands, func(in []*stablehlo.Value) []*stablehlo.Value {
		g, ok := target.(*Function)
		switch {
		case !ok || g == nil:
			panic(fmt.Errorf("the target is a %T, not a function of this backend", target))
		case g.builder != f.builder:
			panic(errors.New("the target belongs to another computation"))
		case g.parent != nil:
			panic(errors.New("the target is a closure: only functions made by Builder.NewFunction can be called"))
		case g.outputs == nil:
			panic(fmt.Errorf("the target %q has no Return", g.name))
		case len(in) != len(g.parameters):
			panic(fmt.Errorf("the target %q takes %d parameters, got %d", g.name, len(g.parameters), len(in)))
		case g.callDepth >= maxCallDepth:
			panic(fmt.Errorf("the target %q makes calls %d deep already, the most there may be: repeat with While, or call "+
				"fewer functions from one another",
				g.name, g.callDepth))
		case f.topLevel().inlinedCalls+g.inlinedCalls >= maxInlined:
			panic(fmt.Errorf("with the target %q there are more than %d calls once they are inlined, which no compiler ends "+
				"with: repeat with While", g.name, maxInlined))
		}
		if len(in) == 0 { // see Return
			in = append(in, f.opBuilder().specialConstant(dtypes.Bool, valueZero))
		}
		out := must(stablehlo.Call(g.fn, in...))
		f.topLevel().callDepth = max(f.topLevel().callDepth, g.callDepth+1)
		f.topLevel().inlinedCalls += g.inlinedCalls + 1
		return out
	})
}
