package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"tpustrategy/logical"
	"tpustrategy/lowering/module"
)

// ScatterOp is how [ReplicaContext.Scatter] combines rows with those of a
// variable.
type ScatterOp int

const (
	// ScatterAdd adds to the rows.
	ScatterAdd ScatterOp = iota
	// ScatterSub subtracts from them.
	ScatterSub
	// ScatterMul multiplies them.
	ScatterMul
	// ScatterDiv divides them.
	ScatterDiv
	// ScatterUpdate replaces them.
	ScatterUpdate
	// ScatterMin and ScatterMax take the extreme, element by element.
	ScatterMin
	ScatterMax
)

// String returns TensorFlow's name.
func (op ScatterOp) String() string {
	if op < ScatterAdd || op > ScatterMax {
		return fmt.Sprintf("ScatterOp(%d)", int(op))
	}
	return [...]string{"scatter_add", "scatter_sub", "scatter_mul", "scatter_div", "scatter_update", "scatter_min", "scatter_max"}[op]
}

// scatterRule refuses what a variable cannot take.
func (v *Variable) scatterRule(op ScatterOp, inStep bool) error {
	name := fmt.Sprintf("%s %q", op, v.path)
	switch {
	case op < ScatterAdd || op > ScatterMax:
		return fault(ValueError, name, "use one of the constants", "no such scatter")
	case len(v.shape) == 0:
		return fault(ValueError, name, "assign it", "a scalar has no rows")
	case v.synchronization == OnRead:
		return fault(NotImplementedError, name, "assign it", "a variable that is combined on read has no scatter")
	case !inStep && v.strategy.opts.Semantics == TensorFlowTPU: // one value for all components
	case op >= ScatterUpdate && v.aggregation != AggregateNone && v.aggregation != AggregateFirst:
		return fault(NotImplementedError, name, "use aggregation NONE or ONLY_FIRST_REPLICA", "aggregation %s has no meaning for it", v.aggregation)
	case inStep && v.strategy.opts.Semantics == TensorFlowTPU && v.aggregation != AggregateNone:
		return fault(NotImplementedError, name, "leave Options.Semantics at its default", "TensorFlow's TPU variables scatter in a step with aggregation NONE only")
	}
	return nil
}

// Scatter combines the rows of a variable that indices name with updates and
// returns the variable's new value: indices are integers [k], updates [k, ...] with
// the variable's other dimensions. Rows named several times are combined several
// times; of those that replace, the last counts.
//
// The aggregation is that of TensorFlow's sparse values: SUM applies the updates of
// all replicas, MEAN the same with each divided by their number, ONLY_FIRST_REPLICA
// replica 0's. ScatterUpdate, ScatterMin and ScatterMax know no SUM and MEAN. Cost:
// multiplying and dividing take k times the variable's size in work, replacing
// k times its rows.
func (rc *ReplicaContext) Scatter(op ScatterOp, v *Variable, indices, updates *graph.Node) *graph.Node {
	c := rc.capture(op.String(), v)
	rc.inReplica(op.String())
	rc.writesInMain(op.String())
	if err := v.scatterRule(op, true); err != nil {
		panic(err)
	}
	if v.aggregation == AggregateNone && !v.localWrites && rc.strategy.replicas > 1 {
		panic(rc.noAggregation(fmt.Sprintf("%s %q", op, v.path)))
	}
	indices, updates = rc.aggregateRows(v.aggregation, indices, updates)
	return rc.scatter(op, c, indices, updates)
}

// aggregateRows brings the replicas' rows together.
func (rc *ReplicaContext) aggregateRows(a VariableAggregation, indices, updates *graph.Node) (_, _ *graph.Node) {
	switch a {
	case AggregateSum, AggregateMean:
		if a == AggregateMean {
			updates = graph.DivScalar(updates, float64(rc.strategy.replicas))
		}
		return module.AllGather(indices, 0), module.AllGather(updates, 0)
	case AggregateFirst:
		return rc.first(indices), rc.first(updates)
	}
	return indices, updates
}

func (rc *ReplicaContext) scatter(op ScatterOp, c *captured, indices, updates *graph.Node) *graph.Node {
	name := fmt.Sprintf("%s %q", op, c.variable.path)
	old := c.now
	if indices.Rank() != 1 || !indices.DType().IsInt() {
		panic(fault(ValueError, name, "give a vector of row numbers", "indices of shape %s", indices.Shape()))
	}
	want := shapes.Make(old.DType(), append([]int{indices.Shape().Dimensions[0]}, old.Shape().Dimensions[1:]...)...)
	if !updates.Shape().Equal(want) {
		panic(fault(ValueError, name, "give one row for each index", "updates of shape %s where %s is needed", updates.Shape(), want))
	}
	at := graph.ExpandAxes(indices, -1)
	var now *graph.Node
	switch op {
	case ScatterAdd:
		now = graph.ScatterSum(old, at, updates, false, false)
	case ScatterSub:
		now = graph.ScatterSum(old, at, graph.Neg(updates), false, false)
	case ScatterMin:
		now = graph.ScatterMin(old, at, updates, false, false)
	case ScatterMax:
		now = graph.ScatterMax(old, at, updates, false, false)
	case ScatterUpdate:
		now = replaceRows(old, indices, updates)
	case ScatterMul:
		now = graph.Mul(old, rowFactors(old, indices, updates))
	case ScatterDiv:
		now = graph.Div(old, rowFactors(old, indices, updates))
	}
	c.now, c.changed = now, true
	return now
}

// replaceRows replaces each row of x by the last of the updates that name it.
func replaceRows(x, indices, updates *graph.Node) *graph.Node {
	g := x.Graph()
	k, rows := indices.Shape().Dimensions[0], x.Shape().Dimensions[0]
	shape := shapes.Make(dtypes.Int32, k, rows)
	named := graph.Equal(graph.Iota(g, shape, 1), graph.BroadcastToDims(graph.ExpandAxes(graph.ConvertDType(indices, dtypes.Int32), -1), k, rows))
	order := graph.Iota(g, shape, 0)
	last := graph.ReduceMax(graph.Where(named, order, graph.Neg(graph.OnesLike(order))), 0)
	zero := graph.ScalarZero(g, dtypes.Int32)
	replaced := graph.GreaterOrEqual(last, zero)
	from := graph.Gather(updates, graph.ExpandAxes(graph.Max(last, zero), -1))
	for range x.Rank() - 1 {
		replaced = graph.ExpandAxes(replaced, -1)
	}
	return graph.Where(graph.BroadcastToDims(replaced, x.Shape().Dimensions...), from, x)
}

// rowFactors is, for each row of x, the product of the updates that name it.
func rowFactors(x, indices, updates *graph.Node) *graph.Node {
	g := x.Graph()
	k := indices.Shape().Dimensions[0]
	dims := append([]int{k}, x.Shape().Dimensions...)
	row := graph.Iota(g, shapes.Make(dtypes.Int32, dims...), 1)
	lead := make([]int, len(dims))
	for i := range lead {
		lead[i] = 1
	}
	lead[0] = k
	index := graph.BroadcastToDims(graph.Reshape(graph.ConvertDType(indices, dtypes.Int32), lead...), dims...)
	update := graph.BroadcastToDims(graph.ExpandAxes(updates, 1), dims...)
	return graph.ReduceMultiply(graph.Where(graph.Equal(row, index), update, graph.OnesLike(update)), 0)
}

// Scatter combines rows of all components with host values, or mirrored ones, from
// outside the replicas; see [ReplicaContext.Scatter]. Nothing is aggregated.
func (v *Variable) Scatter(ctx context.Context, op ScatterOp, indices, updates any) error {
	name := fmt.Sprintf("%s %q", op, v.path)
	if err := v.crossUse(ctx, name); err != nil {
		return err
	}
	if err := v.scatterRule(op, false); err != nil {
		return err
	}
	var values []Value
	for _, x := range []any{indices, updates} {
		m, ok := x.(*Mirrored)
		if !ok {
			var err error
			if m, err = v.strategy.Mirror(ctx, x, logical.Annotation{}); err != nil {
				return &Error{Op: name, Reason: fmt.Sprintf("a value of type %T", x), Hint: "give host or mirrored values", Err: err, kind: TypeError}
			}
			defer m.Close()
		} else if err := v.strategy.owns(m); err != nil {
			return err
		}
		values = append(values, m)
	}
	_, err := v.strategy.call(ctx, builtinCall{
		name: op.String(), values: values, variables: []*Variable{v},
		step: func(rc *ReplicaContext, held []*captured, in []*graph.Node) []*graph.Node {
			rc.scatter(op, held[0], in[0], in[1])
			return nil
		},
	})
	return err
}

// Scatter is [ReplicaContext.Scatter] for eager code.
func (rc *EagerContext) Scatter(op ScatterOp, v *Variable, indices, updates any) (any, error) {
	if err := rc.own(op.String(), v); err != nil {
		return nil, err
	}
	s := rc.strategy
	return rc.join(op.String()+" "+v.path, [2]any{indices, updates}, func(all []any) ([]any, error) {
		values := make([]Value, 2)
		for i := range values {
			column := make([]any, len(all))
			for r := range all {
				column[r] = all[r].([2]any)[i]
			}
			x, release, err := s.merge(rc.outer(), op.String(), column)
			if err != nil {
				return nil, err
			}
			defer release()
			values[i] = x
		}
		return rc.apply(builtinCall{
			name: "replica_" + op.String(), values: values, variables: []*Variable{v},
			step: func(c *ReplicaContext, held []*captured, in []*graph.Node) []*graph.Node {
				return []*graph.Node{c.Scatter(op, held[0].variable, in[0], in[1])}
			},
		}, v)
	})
}
