package eager

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Reduce reduces every leaf of a nest over the replicas, like TensorFlow's Strategy.reduce. A leaf
// is a value or a variable (see [strategy.TPUStrategy.Reduce]), or a host value. A host value is
// one value for all replicas: without axes its MEAN is the value itself, and its SUM is an
// [*strategy.Error] of kind ValueError, unless the value is zero or there is only one replica. With
// axes it counts as the same value on every replica.
//
// In a merge call of a compiled step, with [MergeContext.Context], Reduce accepts and returns
// *[MergeValue] values and is part of the step.
func (e *Extended) Reduce(ctx context.Context, op strategy.ReduceOp, nest any, axes ...int) (any, error) {
	mc, err := e.checkReduction(ctx, op, "reduce")
	switch {
	case err != nil:
		return nil, err
	case mc != nil:
		return mc.reduceNest(op, "reduce", nest, axes...)
	case len(axes) > 0:
		return nesting.Map("reduce", nest, func(_ string, x any) (any, error) { return e.reduceAxes(ctx, op, x, axes) })
	}
	results, err := e.reduceNow(ctx, op, "reduce", []any{nest}, []placement{{}})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// checkReduction returns an error for an undefined op or a ctx that does not allow a reduction. If
// ctx belongs to a merge call of a compiled step, it also returns the MergeContext of this call.
func (e *Extended) checkReduction(ctx context.Context, op strategy.ReduceOp, call string) (*MergeContext, error) {
	mc, err := e.mergeContext(ctx, call)
	if err == nil && op != strategy.Sum && op != strategy.Mean {
		err = fault.UnknownReduction(call, op)
	}
	return mc, err
}

// reduceAxes reduces one leaf of a nest over the replicas and over the given axes.
func (e *Extended) reduceAxes(ctx context.Context, op strategy.ReduceOp, x any, axes []int) (any, error) {
	m := engine.Internal(e.strategy)
	value, plain := x.(strategy.Value)
	release := func() error { return nil }
	var err error
	if v, ok := x.(*strategy.Variable); ok && e.VariableCreatedInScope(v) { // reduce its components
		_, value, release, err = m.Resolve(ctx, "reduce", v)
	} else if !plain || m.NeedsResolve(x) {
		value, release, err = m.ResolveMirrored(ctx, "reduce", x)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = release() }()
	return e.strategy.Reduce(ctx, op, value, axes...)
}

// reduction describes how one value or variable is reduced. One program executes all reductions of
// a call, because a launch costs more than a small all-reduce.
type reduction struct {
	value    strategy.Value
	variable *strategy.Variable
	how      byte
	// annotation is the annotation of the result.
	annotation logical.Annotation
	release    func() error
}

// resultIndex is the index of a reduction. It is a placeholder in a nest until the result of the
// reduction is available.
type resultIndex int

// reduceNow reduces the leaves of all nests in one program, outside of a trace. It moves the
// results of each nest to the placement with the same index in places.
func (e *Extended) reduceNow(ctx context.Context, op strategy.ReduceOp, call string, nests []any,
	places []placement) ([]any, error) {
	var all []reduction
	results := make([]any, len(nests))
	var err error
	for i, nest := range nests {
		if results[i], err = e.planNest(ctx, op, nest, places[i], &all); err != nil {
			err = fault.WithIndex(i, len(nests), err)
			break
		}
	}
	var reduced []strategy.Value
	if err == nil && len(all) > 0 {
		reduced, err = e.reduceAll(ctx, op, all)
	}
	for _, r := range all {
		err = errors.Join(err, r.release())
	}
	for i := 0; i < len(nests) && err == nil; i++ {
		results[i], err = nesting.Map(call, results[i], func(_ string, x any) (any, error) {
			if at, ok := x.(resultIndex); ok {
				return e.moveResult(ctx, reduced[at].(*strategy.Mirrored), places[i])
			}
			return x, nil
		})
	}
	if err != nil {
		for _, v := range reduced {
			err = errors.Join(err, v.Close())
		}
		return nil, err
	}
	return results, nil
}

// planNest appends a reduction for each leaf of a nest to all. It returns the nest with each leaf
// replaced by the index of its reduction.
func (e *Extended) planNest(ctx context.Context, op strategy.ReduceOp, nest any, to placement,
	all *[]reduction) (any, error) {
	s := e.strategy
	if s.Semantics() == strategy.TensorFlowTPU && op == strategy.Sum && nest != nil &&
		nesting.IsNest(reflect.TypeOf(nest)) {
		return nil, fault.New(errkind.ValueError, "reduce",
			"reduce its values one by one, or leave Options.Semantics at its default",
			"a nest, which TensorFlow's TPU strategy does not take apart")
	}
	return nesting.Map("reduce", nest, func(_ string, x any) (any, error) {
		if _, ok := x.(Component); ok { // one value that belongs to no replica
			if !engine.Internal(s).NeedsResolve(x) {
				return nil, engine.Internal(s).CheckOwned("reduce", x)
			}
			if op == strategy.Sum && s.NumReplicasInSync() > 1 {
				return nil, fault.NotDistributed("reduce")
			}
			return x, nil
		}
		r := reduction{release: func() error { return nil }}
		var err error
		if v, ok := x.(*strategy.Variable); ok && e.VariableCreatedInScope(v) {
			r.variable, r.annotation = v, to.annotationFor(v.Shape().Dimensions, v.Annotation())
			r.how, err = engine.Internal(s).Reduction(op, v)
		} else {
			var host *tensors.Tensor
			if host, r.value, r.release, err = engine.Internal(s).Resolve(ctx, "reduce", x); err != nil {
				return nil, err
			}
			if host != nil {
				return x, checkOneValue("reduce", op, s, host)
			}
			r.annotation = to.annotationFor(r.value.Shape().Dimensions, r.value.Annotation())
			if r.how, err = engine.Internal(s).Reduction(op, r.value); err != nil {
				err = errors.Join(err, r.release())
			}
		}
		if err != nil {
			return nil, err
		}
		*all = append(*all, r)
		return resultIndex(len(*all) - 1), nil
	})
}

// checkOneValue returns an error for the sum of a host value. Such a value does not belong to a
// replica, so its sum over the replicas is not defined.
func checkOneValue(call string, op strategy.ReduceOp, s *strategy.TPUStrategy, x any) error {
	if op == strategy.Sum && s.NumReplicasInSync() > 1 && !isZero(x) {
		return fault.NotDistributed(call)
	}
	return nil
}

func isZero(x any) bool {
	t, err := hostdata.ToTensor(x)
	if err != nil {
		return false
	}
	zero := false
	err = t.ConstBytes(func(data []byte) { zero = !slices.ContainsFunc(data, func(b byte) bool { return b != 0 }) })
	return err == nil && zero
}

// reduceAll executes all reductions in one program.
func (e *Extended) reduceAll(ctx context.Context, op strategy.ReduceOp, all []reduction) ([]strategy.Value, error) {
	var values []strategy.Value
	var variables []*strategy.Variable
	var layouts []logical.Annotation
	plan := make([]reduction, len(all)) // without values, so that the program does not keep them
	name := fmt.Sprintf("reduce_%s_", op)
	for i, r := range all {
		if r.variable == nil {
			values = append(values, r.value)
		} else {
			at := slices.Index(variables, r.variable)
			if at < 0 {
				at, variables = len(variables), append(variables, r.variable)
			}
			name += fmt.Sprintf("v%d", at)
		}
		name += string(rune(r.how))
		layouts = append(layouts, r.annotation)
		plan[i] = reduction{variable: r.variable, how: r.how}
	}
	step := func(c *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
		for _, r := range plan {
			var x *graph.Node
			if r.variable != nil {
				x = c.Read(r.variable)
			} else {
				x, in = in[0], in[1:]
			}
			out = append(out, engine.Internal(c).Reduce(op, r.how, x))
		}
		return out
	}
	return engine.Internal(e.strategy).RunBuiltin(ctx, name, step, values, variables, true, layouts...)
}

// Gather concatenates the replicas' tensors for each leaf of a nest, like TensorFlow's
// Strategy.gather. A leaf is a value (see [strategy.TPUStrategy.Gather]) or a variable, whose
// components are concatenated. A host value is returned unchanged. In a merge call of a compiled
// step Gather is part of the step, like [Extended.Reduce].
func (e *Extended) Gather(ctx context.Context, nest any, axis int) (any, error) {
	s := e.strategy
	mc, err := e.mergeContext(ctx, "gather")
	switch {
	case err != nil:
		return nil, err
	case mc != nil:
		return mc.mapLeaves("gather", nest, func(m *MergeValue, x any, host bool) any {
			if host {
				return x
			}
			return mc.Gather(m, axis)
		})
	}
	return nesting.Map("gather", nest, func(_ string, x any) (any, error) {
		switch x := x.(type) {
		case strategy.Value:
			return s.Gather(ctx, x, axis)
		case *strategy.Variable:
			if err := engine.Internal(s).CheckOwned("gather", x); err != nil {
				return nil, err
			}
			_, v, release, err := engine.Internal(s).Resolve(ctx, "gather", x)
			if err != nil {
				return nil, err
			}
			defer func() { _ = release() }()
			return s.Gather(ctx, v, axis)
		case *strategy.Objects:
			return nil, fault.New(errkind.TypeError, "gather", "return tensors from the replicas",
				"values that are no tensors: %s", x)
		}
		return x, nil
	})
}
