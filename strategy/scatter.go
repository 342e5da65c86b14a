package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/scatter"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// checkScatter returns an error if the variable does not support the scatter operation.
func (v *Variable) checkScatter(op ScatterOp, inStep bool) error {
	name := fmt.Sprintf("%s %q", op, v.path)
	switch {
	case op < ScatterAdd || op > ScatterMax:
		return fault.New(errkind.ValueError, name, "use one of the constants", "no such scatter")
	case len(v.shape) == 0:
		return fault.New(errkind.ValueError, name, "assign it", "a scalar has no rows")
	case v.synchronization == OnRead:
		return fault.New(errkind.NotImplementedError, name, "assign it",
			"a variable that is combined on read has no scatter")
	case !inStep && v.strategy.opts.Semantics == TensorFlowTPU: // one value for all components
	case op >= ScatterUpdate && v.aggregation != AggregateNone && v.aggregation != AggregateFirst:
		return fault.New(errkind.NotImplementedError, name, "use aggregation NONE or ONLY_FIRST_REPLICA",
			"aggregation %s has no meaning for it", v.aggregation)
	case inStep && v.strategy.opts.Semantics == TensorFlowTPU && v.aggregation != AggregateNone:
		return fault.New(errkind.NotImplementedError, name, "leave Options.Semantics at its default",
			"TensorFlow's TPU variables scatter in a step with aggregation NONE only")
	}
	return nil
}

// scatters are the implementations, by ScatterOp.
var scatters = [...]scatter.Func{scatter.Add, scatter.Sub, scatter.Mul, scatter.Div, scatter.Replace, scatter.Min,
	scatter.Max}

// Scatter combines rows of a variable with updates and returns the variable's new value. indices
// are row numbers, integers of shape [k]; indices out of range are ignored. updates have shape [k,
// ...], where ... are the variable's other dimensions. A row with several updates is combined with
// each of them in order.
//
// The variable's aggregation is applied as for TensorFlow's sparse values: SUM applies the updates
// of all replicas, MEAN first divides them by the number of replicas, and ONLY_FIRST_REPLICA
// applies the updates of replica 0. ScatterUpdate, ScatterMin and ScatterMax reject SUM and MEAN.
// The cost is proportional to the number of updated rows. Multiplication, division and replacement
// process the rows sequentially and have no gradient.
func (rc *ReplicaContext) Scatter(op ScatterOp, v *Variable, indices, updates *graph.Node) *graph.Node {
	c := rc.capture(op.String(), v)
	c.requireOwn(op.String())
	rc.requireReplicaCode(op.String(), indices, updates)
	name := fmt.Sprintf("%s %q", op, v.path)
	if err := v.checkScatter(op, true); err != nil {
		panic(err)
	}
	if v.aggregation == AggregateNone && !v.localWrites && rc.strategy.replicas > 1 {
		panic(fault.NoAggregation(name))
	}
	if err := scatter.CheckShapes(name, v.Shape(), indices.Shape(), updates.Shape()); err != nil {
		panic(err)
	}
	if indices.Shape().Size() > 0 {
		indices, updates = rc.aggregateRows(v.aggregation, indices, updates)
	}
	return rc.scatterRows(op, c, indices, updates)
}

// aggregateRows combines the indices and updates that the replicas pass to a scatter, by the given
// aggregation.
func (rc *ReplicaContext) aggregateRows(a VariableAggregation, indices, updates *graph.Node) (_, _ *graph.Node) {
	switch a {
	case AggregateSum, AggregateMean:
		if a == AggregateMean {
			updates = divideByReplicas(updates, rc.strategy.replicas)
		}
		return spmd.AllGather(indices, 0), spmd.AllGather(updates, 0)
	case AggregateFirst:
		return rc.firstReplica(indices), rc.firstReplica(updates)
	}
	return indices, updates
}

// scatterRows adds the scatter operation to the graph. The indices and updates are already combined
// over the replicas.
func (rc *ReplicaContext) scatterRows(op ScatterOp, c *capture, indices, updates *graph.Node) *graph.Node {
	c.requireOwn(op.String())
	rc.requireMain(op.String())
	if err := scatter.CheckShapes(fmt.Sprintf("%s %q", op, c.variable.path), c.variable.Shape(), indices.Shape(),
		updates.Shape()); err != nil {
		panic(err)
	}
	return c.write(scatters[op](c.value, indices, updates))
}

// Scatter combines rows of all components with host values or mirrored values, without aggregation.
// It is the counterpart of [ReplicaContext.Scatter] outside of replica code. With the context of an
// update function it is [eager.UpdateContext.Scatter].
func (v *Variable) Scatter(ctx context.Context, op ScatterOp, indices, updates any) error {
	name := fmt.Sprintf("%s %q", op, v.path)
	code, err := v.writer(ctx, name)
	if err != nil {
		return err
	}
	if code != nil {
		return code.ScatterRows(op, v, indices, updates)
	}
	if err := v.checkCrossReplica(ctx, name); err != nil {
		return err
	}
	if err := v.checkScatter(op, false); err != nil {
		return err
	}
	var values []Value
	for _, x := range []any{indices, updates} {
		c, err := operandOf(x).resolveMirrored(ctx, v.strategy, name)
		if err != nil {
			return err
		}
		defer c.release()
		values = append(values, c.value)
	}
	if err := scatter.CheckShapes(name, v.Shape(), values[0].Shape(), values[1].Shape()); err != nil {
		return err
	}
	_, err = builtinCall{
		name: op.String(), values: values, variables: []*Variable{v},
		step: func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			rc.scatterRows(op, rc.capture(name, v), in[0], in[1])
			return nil
		},
	}.run(ctx, v.strategy)
	return err
}
