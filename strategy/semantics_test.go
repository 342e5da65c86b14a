package strategy_test

import (
	"context"
	"math"
	"reflect"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// scalarsOf puts one scalar on each replica.
func scalarsOf(t *testing.T, s *strategy.TPUStrategy) *strategy.PerReplica {
	parts := make([]any, s.NumReplicasInSync())
	for r := range parts {
		parts[r] = tensors.FromScalar(int32(r + 5))
	}
	v, err := s.PerReplica(context.Background(), parts, logical.Annotation{})
	require.NoError(t, err)
	return v
}

func TestOneMirroredReplicaReducesAndGathersToItself(t *testing.T) {
	ctx := context.Background()
	for _, semantics := range []strategy.Semantics{strategy.OwnSemantics, strategy.TensorFlowMirrored} {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 1, LogicalDevices: 2, Semantics: semantics})
		v := scalarsOf(t, s)
		mean, err := s.Reduce(ctx, strategy.Mean, v)
		require.NoError(t, err)
		_, gatherErr := s.Gather(ctx, v, 3)
		if semantics == strategy.OwnSemantics {
			require.Equal(t, dtypes.Float64, mean.Shape().DType, "the dtype does not depend on the number of replicas")
			require.Equal(t, strategy.InvalidArgumentError, strategy.KindOf(gatherErr))
			continue
		}
		require.Equal(t, dtypes.Int32, mean.Shape().DType)
		require.NoError(t, gatherErr)
		x, err := mean.Value(ctx)
		require.NoError(t, err)
		require.Equal(t, int32(5), x.Value())
	}
}

func TestReduceNamesAxesThatTensorsDoNotHave(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2})
	v := scalarsOf(t, s)
	for _, axis := range []int{0, -1, 7} {
		_, err := s.Reduce(context.Background(), strategy.Sum, v, axis)
		require.Equal(t, strategy.ValueError, strategy.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "rank 0")
	}
}

func TestTPUSemanticsTakeOneValueToSum(t *testing.T) {
	ctx := context.Background()
	for semantics, refused := range map[strategy.Semantics]bool{strategy.OwnSemantics: false, strategy.TensorFlowMirrored: false, strategy.TensorFlowTPU: true} {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, Semantics: semantics})
		_, err := eager.Of(s).Reduce(ctx, strategy.Sum, map[string]any{"a": scalarsOf(t, s)})
		require.Equal(t, refused, err != nil, "%s: %v", semantics, err)
		if refused {
			require.Equal(t, strategy.ValueError, strategy.KindOf(err))
		}
	}
}

func TestTPUSemanticsScatterAcrossReplicasWithAnyAggregation(t *testing.T) {
	ctx := context.Background()
	for _, semantics := range []strategy.Semantics{strategy.TensorFlowTPU, strategy.TensorFlowMirrored, strategy.OwnSemantics} {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, Semantics: semantics})
		x, err := s.NewVariable(ctx, []float32{1, 2, 3}, strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		err = x.Scatter(ctx, strategy.ScatterUpdate, []int32{1}, []float32{7})
		if semantics != strategy.TensorFlowTPU {
			require.Equal(t, strategy.NotImplementedError, strategy.KindOf(err))
		} else {
			require.NoError(t, err)
			got, err := x.Value(ctx)
			require.NoError(t, err)
			require.Equal(t, []float32{1, 7, 3}, got.Value())
		}
		require.NoError(t, x.Close())
	}
}

func TestLocalResultsOfANestAreOneForEachReplica(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2})
	nest := map[string]any{"a": 1.0}
	list, err := eager.Of(s).LocalResultsOf(nest)
	require.NoError(t, err)
	require.Equal(t, []any{nest, nest}, list)
	list, err = eager.Of(s).LocalResultsOf(5.0)
	require.NoError(t, err)
	require.Equal(t, []any{5.0}, list)
}

// TensorFlow's sum across TPU replicas has few dtypes, but what the first replica has is
// moved and not summed.
func TestTPUSemanticsMoveTheFirstReplicasValueOfAnyDType(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, Semantics: strategy.TensorFlowTPU})
	for aggregation, refused := range map[strategy.VariableAggregation]bool{strategy.AggregateFirst: false, strategy.AggregateSum: true} {
		x, err := s.NewVariable(ctx, int64(10), strategy.VariableOptions{Aggregation: aggregation})
		require.NoError(t, err)
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			own := graph.AddScalar(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Int64), 5)
			return []*graph.Node{rc.AssignAdd(x, own)}
		}, strategy.FunctionOptions{})
		_, err = f.Run(ctx)
		if refused {
			require.Equal(t, strategy.TypeError, strategy.KindOf(err), "%v", err)
			continue
		}
		require.NoError(t, err)
		for r := range 2 {
			got, err := x.Local(ctx, r)
			require.NoError(t, err)
			require.Equal(t, int64(15), got.Value())
		}
	}
}

// Two functions are one object if they captured the same variables, not if they have
// the same text.
func TestClosuresOfOneTextAreTwoObjects(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	var numbers []func() int
	for n := range 3 {
		numbers = append(numbers, func() int { return n })
	}
	one, two := numbers[1], numbers[2]
	grouped, err := eager.Of(s).Regroup(context.Background(), []any{[]any{one, one}, []any{one, two}})
	require.NoError(t, err)
	list := grouped.([]any)
	assert.Equal(t, 1, list[0].(func() int)())
	assert.Equal(t, 2, list[1].(*strategy.Objects).At(1).(func() int)())
	assert.Equal(t, reflect.ValueOf(one).Pointer(), reflect.ValueOf(two).Pointer(), "which have one text")
}

// A map's members are told apart by keys that can be found again, and named in the
// order of their size.
func TestMapsOfNestsHaveAnOrder(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	ctx := context.Background()
	_, err := eager.Of(s).Regroup(ctx, []any{map[int]any{10: "a", 2: "b", -1: "c"}, map[int]any{2: "b"}})
	require.Equal(t, strategy.AssertionError, strategy.KindOf(err))
	require.ErrorContains(t, err, "replica 1 has keys [2], replica 0 [-1 2 10]")
	nan := map[float64]any{math.NaN(): "a"}
	_, err = eager.Of(s).Regroup(ctx, []any{nan, nan})
	require.Equal(t, strategy.ValueError, strategy.KindOf(err))
	require.ErrorContains(t, err, "NaN among its keys")
}

// What MirroredStrategy gives for the mean of replicas' integers; TPUStrategy has none.
func TestReplicasAverageIntegers(t *testing.T) {
	ctx := context.Background()
	mean := func(s *strategy.TPUStrategy, x func(id int) any) ([]any, error) {
		out, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.AllReduce(strategy.Mean, x(rc.ReplicaIDInSyncGroup()))
		})
		if err != nil {
			return nil, err
		}
		var all []any
		for r := range s.NumReplicasInSync() {
			part, err := out.(*strategy.PerReplica).Local(ctx, r)
			require.NoError(t, err)
			all = append(all, part.Value())
		}
		return all, nil
	}
	ints := func(id int) any { return tensors.FromScalar(int32(id + 1)) }
	for _, p := range []int{1, 2} {
		for _, semantics := range []strategy.Semantics{0, strategy.TensorFlowMirrored} {
			s := strategytest.New(t, 2, p, strategy.Options{Semantics: semantics})
			got, err := mean(s, ints)
			require.NoError(t, err)
			require.Equal(t, []any{1.5, 1.5}, got)
			got, err = mean(s, func(id int) any { return tensors.FromScalar(uint8(255 - id)) })
			require.NoError(t, err)
			require.Equal(t, []any{float32(254.5), float32(254.5)}, got)
			_, err = mean(s, func(id int) any { return tensors.FromScalar(id > 0) })
			require.Equal(t, strategy.InvalidArgumentError, strategy.KindOf(err), "%v", err)
		}
		_, err := mean(strategytest.New(t, 2, p, strategy.Options{Semantics: strategy.TensorFlowTPU}), ints)
		require.Equal(t, strategy.TypeError, strategy.KindOf(err), "%v", err)
	}
	got, err := mean(strategytest.New(t, 1, 1, strategy.Options{Semantics: strategy.TensorFlowMirrored}), ints)
	require.NoError(t, err)
	require.Equal(t, []any{int32(1)}, got)
}

// A sync-on-read variable is read where another takes its value, and is a value of each
// replica where a mirrored one would.
func TestASyncOnReadVariableAsAValue(t *testing.T) {
	ctx := context.Background()
	for _, p := range []int{1, 2} {
		s := strategytest.New(t, 2, p)
		onRead := func() *strategy.Variable {
			v, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
			require.NoError(t, err)
			_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return rc.Assign(v, float32(2*rc.ReplicaIDInSyncGroup()+1))
			})
			require.NoError(t, err)
			return v
		}
		components := func(v *strategy.Variable) []any {
			var all []any
			for r := range 2 {
				part, err := v.Local(ctx, r)
				require.NoError(t, err)
				all = append(all, part.Value())
			}
			return all
		}
		value := onRead()
		to := onRead()
		require.NoError(t, to.Assign(ctx, value))
		require.Equal(t, []any{float32(2), float32(2)}, components(to))
		for _, aggregation := range []strategy.VariableAggregation{strategy.AggregateNone, strategy.AggregateSum} {
			v, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Aggregation: aggregation})
			require.NoError(t, err)
			require.Equal(t, strategy.TypeError, strategy.KindOf(v.Assign(ctx, value)))
			_, err = eager.Of(s).Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return nil, nil }, value)
			if aggregation == strategy.AggregateNone {
				require.NoError(t, err)
			} else {
				require.Equal(t, strategy.TypeError, strategy.KindOf(err))
			}
		}
		apart, err := s.NewVariable(ctx, float32(10), strategy.VariableOptions{LocalWrites: true})
		require.NoError(t, err)
		require.NoError(t, apart.AssignAdd(ctx, value))
		require.Equal(t, []any{float32(11), float32(13)}, components(apart))
		require.NoError(t, to.Assign(ctx, apart), "its value is replica 0's")
		require.Equal(t, []any{float32(5.5), float32(5.5)}, components(to))
	}
}
