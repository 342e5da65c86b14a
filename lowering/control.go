package lowering

import (
	"errors"
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
)

// closure checks that g is a finished closure of f or of an enclosing function. GoMLX creates all
// closures in main.
func (f *Function) closure(role string, g compute.Function) *Function {
	c, ok := g.(*Function)
	switch {
	case !ok || c == nil:
		panic(fmt.Errorf("the %s is a %T, not a function of this backend", role, g))
	case c.parent == nil || !f.within(c.parent):
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

// within reports whether f is outer or is nested in it.
func (f *Function) within(outer *Function) bool {
	for ; f != nil; f = f.parent {
		if f == outer {
			return true
		}
	}
	return false
}

// If runs onTrue or onFalse, depending on the Bool scalar pred. The closures have no parameters and
// the same results.
func (f *Function) If(pred compute.Value, onTrue, onFalse compute.Function) ([]compute.Value, error) {
	return f.ops("If", with(pred), func(in []*stablehlo.Value) []*stablehlo.Value {
		return must(stablehlo.If(in[0], f.closure("true branch", onTrue).fn, f.closure("false branch", onFalse).fn))
	})
}

// While runs body on the state as long as cond is true.
func (f *Function) While(cond, body compute.Function, state ...compute.Value) ([]compute.Value, error) {
	return f.ops("While", state, func(in []*stablehlo.Value) []*stablehlo.Value {
		c, b := f.closure("condition", cond), f.closure("body", body)
		return must(stablehlo.While(c.fn, b.fn, f.lasting(b, in)...))
	})
}

// Sort sorts tensors of one shape together along axis, in the order of comparator. For TargetCPU
// every sort is stable, see [TargetCPU].
func (f *Function) Sort(comparator compute.Function, axis int, stable bool, operands ...compute.Value) ([]compute.Value, error) {
	return f.ops("Sort", operands, func(in []*stablehlo.Value) []*stablehlo.Value {
		c := f.closure("comparator", comparator)
		if len(in) == 0 {
			panic(errors.New("at least one tensor is needed"))
		}
		axis := axisOf(axis, in[0].Shape().Rank())
		return must(stablehlo.Sort(c.fn, axis, stable || f.builder.backend.opts.Target == TargetCPU, in...))
	})
}

// maxCallDepth bounds nested calls. XLA's compilers recurse over calls, and thousands of nested
// calls abort the process.
const maxCallDepth = 256

// maxInlined bounds the calls of a function after inlining. Compilers inline all calls, and no
// compiler finishes with more.
const maxInlined = 1 << 20

// Call runs another top-level function of the same computation. Calls can be nested 256 deep.
func (f *Function) Call(target compute.Function, operands ...compute.Value) ([]compute.Value, error) {
	return f.ops("Call", operands, func(in []*stablehlo.Value) []*stablehlo.Value {
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
		case g.calls >= maxCallDepth:
			panic(fmt.Errorf("the target %q makes calls %d deep already, the most there may be: repeat with While, or call fewer functions from one another",
				g.name, g.calls))
		case f.top().inlined+g.inlined >= maxInlined:
			panic(fmt.Errorf("with the target %q there are more than %d calls once they are inlined, which no compiler ends with: repeat with While", g.name, maxInlined))
		}
		if len(in) == 0 { // see Return
			in = append(in, f.chain().scalar(dtypes.Bool, valueZero))
		}
		out := must(stablehlo.Call(g.fn, in...))
		f.top().calls = max(f.top().calls, g.calls+1)
		f.top().inlined += g.inlined + 1
		return out
	})
}
