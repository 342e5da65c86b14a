package strategy_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// TestAReplicaContextEndsWithItsTrace calls every method of a context in a later step, and the
// methods of a valid context with nodes of another graph.
func TestAReplicaContextEndsWithItsTrace(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	v, err := s.NewVariable(t.Context(), []float32{1, 2}, strategy.VariableOptions{Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	var kept *strategy.ReplicaContext
	var old *graph.Node
	run := func(step strategy.StepFunc) error {
		_, err := s.Function(step, strategy.FunctionOptions{Store: model.NewStore()}).Run(t.Context(), []float32{1, 2, 3, 4})
		return err
	}
	require.NoError(t, run(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		kept, old = rc, in[0]
		return in
	}))
	calls := map[string]func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node{
		"AllReduce": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.AllReduce(strategy.Sum, x) },
		"AllGather": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.AllGather(x, 0) },
		"Broadcast": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.Broadcast(x) },
		"Scatter": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return rc.Scatter(strategy.ScatterAdd, v, graph.ConvertDType(x, dtypes.Int32), x)
		},
		"MergeCall": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
				return []*eager.MergeValue{mc.Reduce(strategy.Sum, args[0])}
			}, x)[0]
		},
		"Assign":    func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.Assign(v, x) },
		"AssignAdd": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.AssignAdd(v, x) },
		"AssignSub": func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { return rc.AssignSub(v, x) },
	}
	withoutNodes := map[string]func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node{
		"Read":       func(rc *strategy.ReplicaContext, _ *graph.Node) *graph.Node { return rc.Read(v) },
		"ReadAcross": func(rc *strategy.ReplicaContext, _ *graph.Node) *graph.Node { return rc.ReadReduced(v) },
		"Graph":      func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { rc.Graph(); return x },
		"Scope":      func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node { rc.Scope("layer"); return x },
		"ReplicaID": func(rc *strategy.ReplicaContext, _ *graph.Node) *graph.Node {
			return rc.ReplicaIDInSyncGroup()
		},
		"RealSize":     func(rc *strategy.ReplicaContext, _ *graph.Node) *graph.Node { return rc.ValidSize(0, 0) },
		"RealElements": func(rc *strategy.ReplicaContext, _ *graph.Node) *graph.Node { return rc.RealElements(0) },
	}
	for name, call := range calls {
		err := run(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{call(rc, old)}
		})
		assert.Error(t, err, "%s with a node of another graph", name)
		withoutNodes[name] = call
	}
	for name, call := range withoutNodes {
		err := run(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{call(kept, in[0])}
		})
		assert.ErrorIs(t, err, strategy.ErrContext, name)
		assert.ErrorContains(t, err, "the replica context is used after its step was traced", name)
		assert.NotContains(t, fmt.Sprint(err), "nil pointer", name)
		require.NoError(t, run(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			if name == "Scatter" || name[0] == 'A' && name[1] == 's' {
				return in
			}
			return []*graph.Node{call(rc, in[0])}
		}), name)
	}
}

// TestTheMeanOfIntegersIsOneInsideAndOutsideOfSteps compares the mean of integers in a step, in a
// merge call and outside of steps.
func TestTheMeanOfIntegersIsOneInsideAndOutsideOfSteps(t *testing.T) {
	ctx := t.Context()
	for _, semantics := range []strategy.Semantics{strategy.Semantics(0), strategy.TensorFlowTPU} {
		s := strategytest.New(t, 2, 1, strategy.Options{Semantics: semantics})
		for _, batch := range []any{[]int32{1, 2, 4, 5}, []int64{1, 2, 1 << 62, 1<<62 + 2}, []int8{100, 127, 101, 127},
			[]uint64{1, 2, 1 << 63, 3}} {
			x, err := s.SplitBatch(ctx, batch, logical.Annotation{}, false)
			require.NoError(t, err)
			outside, outsideErr := s.Reduce(ctx, strategy.Mean, x)
			inside, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{rc.AllReduce(strategy.Mean, in[0])}
			}, strategy.FunctionOptions{}).Run(ctx, x)
			merged, mergedErr := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
					return []*eager.MergeValue{mc.Reduce(strategy.Mean, args[0]), mc.Reduce(strategy.Mean, args[0], 0)}
				}, in[0])
			}, strategy.FunctionOptions{}).Run(ctx, x)
			if semantics == strategy.TensorFlowTPU {
				for _, err := range []error{outsideErr, err, mergedErr} {
					assert.ErrorContains(t, err, "MEAN of dtype")
				}
				continue
			}
			require.NoError(t, outsideErr)
			require.NoError(t, err)
			require.NoError(t, mergedErr)
			want := strategytest.OK(outside.Value(ctx)).Value()
			assert.Equal(t, want, strategytest.OK(inside[0].Local(ctx, 1)).Value(), "%T", batch)
			assert.Equal(t, want, strategytest.OK(merged[0].Local(ctx, 1)).Value(), "%T", batch)
			total, err := s.Reduce(ctx, strategy.Mean, x, 0)
			require.NoError(t, err)
			assert.Equal(t, strategytest.OK(total.Value(ctx)).Value(), strategytest.OK(merged[1].Local(ctx, 0)).Value(), "%T",
				batch)
		}
	}
}
