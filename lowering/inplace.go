package lowering

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// copyBeforeUpdate prepares the tensor whole for an update that overwrites a slice of it with part.
// It returns whole, or a copy of whole that is safe to update. The CPU compiler updates a tensor in
// place, and may then read overwritten elements of whole while it computes part. The compiler
// detects this conflict unless whole is a reshape of another tensor, as in the lowering of Gather,
// CumSum and MatMul. In that case copyBeforeUpdate returns a copy with zeros at the elements that
// the update overwrites, because the compiler would remove an exact copy.
func (f *Function) copyBeforeUpdate(whole, part *stablehlo.Value, at []*stablehlo.Value) *stablehlo.Value {
	if f.builder.backend.opts.Target != TargetCPU || f.isSafeToUpdate(whole) || !f.haveCommonSource(whole, part) {
		return whole
	}
	c, shape := f.opBuilder(), whole.Shape()
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
		after := c.constant(place.DType, signedNumber(size))
		first := c.broadcast(at[axis], place)
		behind := c.broadcast(c.binary(stablehlo.Add, at[axis], after), place)
		for _, within := range []*stablehlo.Value{c.compare(types.CompareGE, i, first), c.compare(types.CompareLT, i,
			behind)} {
			if inside != nil {
				within = c.binary(stablehlo.And, inside, within)
			}
			inside = within
		}
	}
	if inside == nil {
		return whole
	}
	return c.selectElements(inside, c.zeros(shape), whole)
}

// isSafeToUpdate reports whether v is certainly not a reshape of another tensor: an argument of
// main or of a loop body, a splat constant, or the result of a partial update. Loops and chains of
// updates then run in place.
func (f *Function) isSafeToUpdate(v *stablehlo.Value) bool {
	s := f.definition(v.String())
	if s == nil {
		for g := f; g.parent != nil; g = g.parent {
			g.mayUpdateArgument = true
		}
		// Called functions are inlined into their callers, where the arguments may be reshapes.
		return f.topLevel() == f.builder.main
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

// haveCommonSource reports whether x and y depend on a common tensor.
func (f *Function) haveCommonSource(x, y *stablehlo.Value) bool {
	of := map[string]bool{}
	f.collectSources(x, of, nil)
	return f.collectSources(y, map[string]bool{}, of)
}

// collectSources adds x and the tensors that x depends on to seen. It stops and returns true at a
// tensor that is in found.
func (f *Function) collectSources(x *stablehlo.Value, seen, found map[string]bool) bool {
	name := x.String()
	if seen[name] || x.Shape().IsScalar() && f.definition(name) == nil {
		return false
	}
	if found[name] {
		return true
	}
	seen[name] = true
	if s := f.definition(name); s != nil {
		return f.collectOperandSources(s, seen, found)
	}
	return false
}

// collectOperandSources calls collectSources for the operands of a statement and of its nested
// statements.
func (f *Function) collectOperandSources(s *stablehlo.Statement, seen, found map[string]bool) bool {
	for _, in := range s.Inputs {
		if f.collectSources(in, seen, found) {
			return true
		}
	}
	for _, inner := range s.FunctionParameters {
		for _, s := range inner.Statements {
			if f.collectOperandSources(s, seen, found) {
				return true
			}
		}
	}
	return false
}

// hideTripCount adds an optimization barrier to the state of a loop if the loop's body may update
// the state in place. Without the barrier, the CPU compiler inlines the body of a loop that runs
// once. The state may then be a reshape, which is not safe to update (see copyBeforeUpdate).
func (f *Function) hideTripCount(body *Function, state []*stablehlo.Value) []*stablehlo.Value {
	if f.builder.backend.opts.Target != TargetCPU || !body.mayUpdateArgument {
		return state
	}
	second := f.opBuilder().specialConstant(dtypes.Bool, valueZero) // see TargetCPU
	return must(stablehlo.OptimizationBarrier(append(slices.Clone(state), second)...))[:len(state)]
}
