package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestRaggedArgumentsArePaddedOnRequest(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 3, 1)
	batch, err := s.PerReplica(ctx, []any{[]float32{1, 2, 3}, []float32{4}, []float32{}}, logical.Annotation{})
	require.NoError(t, err)
	step := func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := graph.AddScalar(in[0], 10) // the padding is now 10
		sum := graph.ReduceAllSum(graph.Where(rc.RealElements(0), x, graph.ZerosLike(x)))
		count := graph.ConvertDType(rc.ValidSize(0, -1), dtypes.Float32)
		whole := graph.ConvertDType(rc.ValidSize(1, 0), dtypes.Float32)
		return []*graph.Node{sum, count, whole}
	}
	_, err = s.Function(step, strategy.FunctionOptions{}).Run(ctx, batch, []float32{7, 7})
	var bad *strategy.ArgumentError
	require.ErrorAs(t, err, &bad)
	require.ErrorContains(t, err, "set FunctionOptions.Padding to MaskPadding")
	out, err := s.Function(step, strategy.FunctionOptions{Padding: strategy.MaskPadding}).Run(ctx, batch, []float32{7, 7})
	require.NoError(t, err)
	require.Equal(t, []any{float32(36), float32(14), float32(0)}, strategytest.Values(t, out[0], 3))
	require.Equal(t, []any{float32(3), float32(1), float32(0)}, strategytest.Values(t, out[1], 3))
	require.Equal(t, []any{float32(2), float32(2), float32(2)}, strategytest.Values(t, out[2], 3))
}
