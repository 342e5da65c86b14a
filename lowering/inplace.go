package lowering

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// ownCopy prevents the CPU compiler from writing part into whole in place while it still reads
// elements of whole to compute part, which would read overwritten elements. The compiler detects
// the conflict unless whole is a reshape of another tensor, as the lowering of some ops introduces
// (Gather, CumSum, MatMul). Therefore whole is copied, without the elements that are overwritten. A
// copy that computes nothing would be simplified away, and barriers are removed before fusion.
func (f *Function) ownCopy(whole, part *stablehlo.Value, at []*stablehlo.Value) *stablehlo.Value {
	if f.builder.backend.opts.Target != TargetCPU || f.ownTensor(whole) || !f.share(whole, part) {
		return whole
	}
	c, shape := f.chain(), whole.Shape()
	var inside *stablehlo.Value
	for axis := range min(len(at), shape.Rank(), part.Shape().Rank()) {
		size := part.Shape().Dimensions[axis]
		if size > shape.Dimensions[axis] || !at[axis].Shape().IsScalar() || !at[axis].Shape().DType.IsInt() {
			return whole // the op returns the error
		}
		if size == shape.Dimensions[axis] {
			continue
		}
		place := xshapes.Make(at[axis].Shape().DType, shape.Dimensions...)
		i := must(c.fn.Iota(place, axis))
		after := c.number(place.DType, signed(size))
		first := c.broadcast(at[axis], place)
		behind := c.broadcast(c.binary(stablehlo.Add, at[axis], after), place)
		for _, within := range []*stablehlo.Value{c.compare(types.CompareGE, i, first), c.compare(types.CompareLT, i, behind)} {
			if inside != nil {
				within = c.binary(stablehlo.And, inside, within)
			}
			inside = within
		}
	}
	if inside == nil {
		return whole
	}
	return c.selects(inside, c.zeros(shape), whole)
}

// ownTensor reports whether v is certainly no reshape of another tensor for the compiler: an
// argument of the step or of a loop's body, a splat constant or a tensor that was updated in part.
// Loops and chains of updates stay in place.
func (f *Function) ownTensor(v *stablehlo.Value) bool {
	s := f.definition(v.String())
	if s == nil {
		for g := f; g.parent != nil; g = g.parent {
			g.updatesState = true
		}
		// Called functions are inlined into their callers, where the arguments may be reshapes.
		return f.top() == f.builder.main
	}
	switch s.OpType.ToStableHLO() {
	case "stablehlo.constant":
		return true
	case "stablehlo.dynamic_update_slice":
		return !slices.Equal(s.Inputs[0].Shape().Dimensions, s.Inputs[1].Shape().Dimensions)
	case "stablehlo.broadcast_in_dim":
		return s.Inputs[0].Shape().IsScalar()
	}
	return false
}

// share reports whether x and y are computed from a common tensor.
func (f *Function) share(x, y *stablehlo.Value) bool {
	of := map[string]bool{}
	f.sources(x, of, nil)
	return f.sources(y, map[string]bool{}, of)
}

// sources adds x and the tensors that x is computed from to seen. It stops and returns true at a
// tensor in found.
func (f *Function) sources(x *stablehlo.Value, seen, found map[string]bool) bool {
	name := x.String()
	if seen[name] || x.Shape().IsScalar() && f.definition(name) == nil {
		return false
	}
	if found[name] {
		return true
	}
	seen[name] = true
	if s := f.definition(name); s != nil {
		return f.inputs(s, seen, found)
	}
	return false
}

// inputs calls sources for the operands of a statement, including the statements nested in it.
func (f *Function) inputs(s *stablehlo.Statement, seen, found map[string]bool) bool {
	for _, in := range s.Inputs {
		if f.sources(in, seen, found) {
			return true
		}
	}
	for _, inner := range s.FunctionParameters {
		for _, s := range inner.Statements {
			if f.inputs(s, seen, found) {
				return true
			}
		}
	}
	return false
}

// lasting hides the trip count of a loop that updates its state from the CPU compiler. The body of
// a loop that runs once is inlined into the enclosing function, where the state may be a reshape.
func (f *Function) lasting(body *Function, state []*stablehlo.Value) []*stablehlo.Value {
	if f.builder.backend.opts.Target != TargetCPU || !body.updatesState {
		return state
	}
	second := f.chain().scalar(dtypes.Bool, valueZero) // see TargetCPU
	return must(stablehlo.OptimizationBarrier(append(slices.Clone(state), second)...))[:len(state)]
}
