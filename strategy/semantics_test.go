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

	"tpustrategy/strategy"
)

// scalarsOf puts one scalar on each replica.
func scalarsOf(t *testing.T, s *strategy.TPUStrategy) *strategy.PerReplica {
	parts := make([]any, s.NumReplicasInSync())
	for r := range parts {
		parts[r] = tensors.FromScalar(int32(r + 5))
	}
	v, err := s.RaggedPerReplica(context.Background(), parts)
	require.NoError(t, err)
	return v
}

func openWith(t *testing.T, o strategy.Options) *strategy.TPUStrategy {
	s, err := strategy.New(openCPU(t, 4), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestOneMirroredReplicaReducesAndGathersToItself(t *testing.T) {
	ctx := context.Background()
	for _, semantics := range []strategy.Semantics{strategy.Default, strategy.TensorFlowMirrored} {
		s := openWith(t, strategy.Options{Replicas: 1, LogicalDevices: 2, Semantics: semantics})
		v := scalarsOf(t, s)
		mean, err := s.Reduce(ctx, strategy.Mean, v)
		require.NoError(t, err)
		_, gatherErr := s.Gather(ctx, v, 3)
		if semantics == strategy.Default {
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
	s := openWith(t, strategy.Options{Replicas: 2})
	v := scalarsOf(t, s)
	for _, axis := range []int{0, -1, 7} {
		_, err := s.Reduce(context.Background(), strategy.Sum, v, axis)
		require.Equal(t, strategy.ValueError, strategy.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "rank 0")
	}
}

func TestTPUSemanticsTakeOneValueToSum(t *testing.T) {
	ctx := context.Background()
	for semantics, refused := range map[strategy.Semantics]bool{strategy.Default: false, strategy.TensorFlowMirrored: false, strategy.TensorFlowTPU: true} {
		s := openWith(t, strategy.Options{Replicas: 2, Semantics: semantics})
		_, err := s.ReduceNest(ctx, strategy.Sum, map[string]any{"a": scalarsOf(t, s)})
		require.Equal(t, refused, err != nil, "%s: %v", semantics, err)
		if refused {
			require.Equal(t, strategy.ValueError, strategy.KindOf(err))
		}
	}
}

func TestTPUSemanticsScatterAcrossReplicasWithAnyAggregation(t *testing.T) {
	ctx := context.Background()
	for _, semantics := range []strategy.Semantics{strategy.TensorFlowTPU, strategy.TensorFlowMirrored, strategy.Default} {
		s := openWith(t, strategy.Options{Replicas: 2, Semantics: semantics})
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
	s := openWith(t, strategy.Options{Replicas: 2})
	nest := map[string]any{"a": 1.0}
	list, err := s.LocalResultsOf(nest)
	require.NoError(t, err)
	require.Equal(t, []any{nest, nest}, list)
	list, err = s.LocalResultsOf(5.0)
	require.NoError(t, err)
	require.Equal(t, []any{5.0}, list)
}

// TensorFlow's sum across TPU replicas has few dtypes, but what the first replica has is
// moved and not summed.
func TestTPUSemanticsMoveTheFirstReplicasValueOfAnyDType(t *testing.T) {
	ctx := context.Background()
	s := openWith(t, strategy.Options{Replicas: 2, Semantics: strategy.TensorFlowTPU})
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
	s := newStrategy(t, 2, strategy.Options{Replicas: 2})
	var numbers []func() int
	for n := range 3 {
		numbers = append(numbers, func() int { return n })
	}
	one, two := numbers[1], numbers[2]
	grouped, err := s.Regroup(context.Background(), []any{[]any{one, one}, []any{one, two}})
	require.NoError(t, err)
	list := grouped.([]any)
	assert.Equal(t, 1, list[0].(func() int)())
	assert.Equal(t, 2, list[1].(*strategy.Objects).At(1).(func() int)())
	assert.Equal(t, reflect.ValueOf(one).Pointer(), reflect.ValueOf(two).Pointer(), "which have one text")
}

// A map's members are told apart by keys that can be found again, and named in the
// order of their size.
func TestMapsOfNestsHaveAnOrder(t *testing.T) {
	s := newStrategy(t, 2, strategy.Options{Replicas: 2})
	ctx := context.Background()
	_, err := s.Regroup(ctx, []any{map[int]any{10: "a", 2: "b", -1: "c"}, map[int]any{2: "b"}})
	require.Equal(t, strategy.AssertionError, strategy.KindOf(err))
	require.ErrorContains(t, err, "replica 1 has keys [2], replica 0 [-1 2 10]")
	nan := map[float64]any{math.NaN(): "a"}
	_, err = s.Regroup(ctx, []any{nan, nan})
	require.Equal(t, strategy.ValueError, strategy.KindOf(err))
	require.ErrorContains(t, err, "NaN among its keys")
}
