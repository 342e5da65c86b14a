package eager

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// AllReduce reduces each tensor of a nest over the replicas and returns the results to each
// replica, like TensorFlow's all_reduce. The replicas' tensors must have the same shape. The
// results count as mirrored, so an update accepts them. The mean of integers is computed as in
// [strategy.TPUStrategy.Reduce].
func (rc *ReplicaContext) AllReduce(op strategy.ReduceOp, nest any) (any, error) {
	if err := rc.checkReplicaCode("AllReduce"); err != nil {
		return nil, err
	}
	step := func(c *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := in[0]
		s := c.Strategy()
		switch integers := x.DType().IsInt(); {
		case s.NumReplicasInSync() == 1 && (!number.IsSummable(x.DType()) || integers &&
			s.Semantics() == strategy.TensorFlowMirrored):
			return in // there is only one summand
		case !number.IsSummable(x.DType()):
			panic(number.CheckSummable("AllReduce", x.DType()))
		}
		return []*graph.Node{c.AllReduce(op, x)}
	}
	m := engine.Internal(rc.strategy)
	return rc.callOnLeaves("AllReduce", op, nest, func(v strategy.Value) (strategy.Value, error) {
		results, err := m.RunBuiltin(rc.callerContext(), "all_reduce_"+op.String(), step, []strategy.Value{v}, nil,
			false, v.Annotation())
		if err != nil {
			return nil, err
		}
		engine.Internal(results[0]).SetReplicaShapes(nil, true)
		return results[0], nil
	})
}

// AllGather concatenates the replicas' tensors along axis, in replica order, and returns the result
// to each replica, like TensorFlow's all_gather. The sizes along axis may differ between replicas.
func (rc *ReplicaContext) AllGather(nest any, axis int) (any, error) {
	s := rc.strategy
	if err := rc.checkReplicaCode("AllGather"); err != nil {
		return nil, err
	}
	return rc.callOnLeaves("AllGather", axis, nest, func(v strategy.Value) (strategy.Value, error) {
		return s.Gather(rc.callerContext(), v, axis)
	})
}

// callOnLeaves makes a collective call and replaces each leaf of a nest by a result of run. For
// each leaf, run receives one value that combines the leaves of all replicas. This value is valid
// only during the call.
func (rc *ReplicaContext) callOnLeaves(call string, subject, nest any, run func(v strategy.Value) (strategy.Value,
	error)) (any, error) {
	s := rc.strategy
	return rc.callCollective(call, subject, nest, func(nests []any) ([]any, error) {
		out, err := nesting.Zip(call, nests, func(path string, leaves []any) (any, error) {
			v, release, err := Of(s).mergeLeaves(rc.callerContext(), call, leaves)
			if err != nil {
				return nil, err
			}
			defer release()
			if ragged := engine.Internal(v).ReplicaShapes(); ragged != nil && call != "AllGather" {
				return nil, fault.New(errkind.InvalidArgumentError, call, "give tensors of one shape",
					"the replicas' shapes differ: %v", ragged)
			}
			return run(v)
		})
		if err != nil {
			return nil, err
		}
		return Of(s).splitByReplica(out)
	})
}

// mergeLeaves combines the leaves of all replicas into one value. If the leaves are the components
// of an existing value, it returns the existing value. Equal host values become a mirrored value.
func (e *Extended) mergeLeaves(ctx context.Context, call string, leaves []any) (v strategy.Value, release func(),
	err error) {
	s := e.strategy
	x, common := commonValue(leaves)
	if !common {
		for _, x := range leaves {
			if err := engine.Internal(s).CheckOwned(call, x); err != nil {
				return nil, nil, err
			}
		}
		_, updating := UpdateReplicaID(ctx)
		if x, err = e.combineLeaves(ctx, call, "", leaves, updating); err != nil {
			return nil, nil, err
		}
		if x, ok := x.(strategy.Value); ok {
			return x, func() { _ = x.Close() }, nil
		}
		return nil, nil, fault.New(errkind.TypeError, call, "give a tensor", "values that are no tensors: %v", x)
	}
	host, value, done, err := engine.Internal(s).Resolve(ctx, call, x)
	switch {
	case err != nil:
		return nil, nil, err
	case value == nil:
		m, err := s.Mirror(ctx, host, logical.Annotation{})
		if err != nil {
			return nil, nil, &strategy.Error{Op: "strategy: " + call, Reason: fmt.Sprintf("a value of type %T",
				host), Hint: "give a tensor", Err: err, Class: errkind.TypeError}
		}
		return m, func() { _ = m.Close() }, nil
	}
	if _, steps := value.(*strategy.StackedBatches); steps {
		return nil, nil, fault.New(errkind.TypeError, call, "give the result of a step", "a value of several steps")
	}
	return value, func() { _ = done() }, nil
}
