package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// scalarsOf copies one scalar to each replica.
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
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 1, LogicalDevices: 2,
			Semantics: semantics})
		v := scalarsOf(t, s)
		mean, err := s.Reduce(ctx, strategy.Mean, v)
		require.NoError(t, err)
		_, gatherErr := s.Gather(ctx, v, 3)
		if semantics == strategy.OwnSemantics {
			require.Equal(t, dtypes.Float64, mean.Shape().DType, "the dtype does not depend on the number of replicas")
			require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(gatherErr))
			continue
		}
		require.Equal(t, dtypes.Int32, mean.Shape().DType)
		require.NoError(t, gatherErr)
		x, err := mean.Value(ctx)
		require.NoError(t, err)
		require.Equal(t, int32(5), x.Value())
	}
}

func TestTPUSemanticsTakeOneValueToSum(t *testing.T) {
	ctx := context.Background()
	for semantics, refused := range map[strategy.Semantics]bool{strategy.OwnSemantics: false,
		strategy.TensorFlowMirrored: false, strategy.TensorFlowTPU: true} {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, Semantics: semantics})
		_, err := eager.Of(s).Reduce(ctx, strategy.Sum, map[string]any{"a": scalarsOf(t, s)})
		require.Equal(t, refused, err != nil, "%s: %v", semantics, err)
		if refused {
			require.Equal(t, errkind.ValueError, errkind.KindOf(err))
		}
	}
}

func TestTPUSemanticsScatterAcrossReplicasWithAnyAggregation(t *testing.T) {
	ctx := context.Background()
	for _, semantics := range []strategy.Semantics{strategy.TensorFlowTPU, strategy.TensorFlowMirrored,
		strategy.OwnSemantics} {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, Semantics: semantics})
		x, err := s.NewVariable(ctx, []float32{1, 2, 3}, strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		err = x.Scatter(ctx, strategy.ScatterUpdate, []int32{1}, []float32{7})
		if semantics != strategy.TensorFlowTPU {
			require.Equal(t, errkind.NotImplementedError, errkind.KindOf(err))
		} else {
			require.NoError(t, err)
			got, err := x.Value(ctx)
			require.NoError(t, err)
			require.Equal(t, []float32{1, 7, 3}, got.Value())
		}
		require.NoError(t, x.Close())
	}
}

// TensorFlow's sum across TPU replicas supports few dtypes, but the value of the first replica is
// transferred without a sum.
func TestTPUSemanticsMoveTheFirstReplicasValueOfAnyDType(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, Semantics: strategy.TensorFlowTPU})
	for aggregation, refused := range map[strategy.VariableAggregation]bool{strategy.AggregateFirst: false,
		strategy.AggregateSum: true} {
		x, err := s.NewVariable(ctx, int64(10), strategy.VariableOptions{Aggregation: aggregation})
		require.NoError(t, err)
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			own := graph.AddScalar(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Int64), 5)
			return []*graph.Node{rc.AssignAdd(x, own)}
		}, strategy.FunctionOptions{})
		_, err = f.Run(ctx)
		if refused {
			require.Equal(t, errkind.TypeError, errkind.KindOf(err), "%v", err)
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
