package nest_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
)

// Annotations and real sizes use the order of the leaves, in which numeric keys are in numerical
// order.
func TestLeavesHaveAnOrder(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	split := logical.SplitInto(2)
	f := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any {
		m := args[0].(map[int]any)
		return pair{B: m[2], A: []any{m[-1], m[10]}}
	}, strategy.FunctionOptions{Arguments: []logical.Annotation{{}, split}, Results: []logical.Annotation{{}, {}, split}})
	numbered := map[int]any{10: []float32{1, 2}, 2: []float64{3, 4}, -1: []int32{5, 6}}
	c, err := f.Compiled(ctx, numbered)
	require.NoError(t, err)
	require.Equal(t, []dtypes.DType{dtypes.Int32, dtypes.Float64, dtypes.Float32},
		[]dtypes.DType{c.Module.Arguments[0].DType, c.Module.Arguments[1].DType, c.Module.Arguments[2].DType})
	require.Equal(t, split, c.Module.Arguments[1].Annotation)
	out, err := f.Run(ctx, numbered)
	require.NoError(t, err)
	p := out.(pair)
	assert.Equal(t, split, p.B.(*strategy.PerReplica).Annotation())
	assert.Equal(t, logical.Annotation{}, p.A.([]any)[1].(*strategy.PerReplica).Annotation())
	assert.Equal(t, []any{[]float64{3, 4}, []float64{3, 4}}, strategytest.Values(t, p.B.(*strategy.PerReplica), 2))

	padded := nest.New(s, func(rc *strategy.ReplicaContext, args []any) any {
		return []any{rc.ValidSize(1, 0), args[1].(pair).B}
	}, strategy.FunctionOptions{Padding: strategy.MaskPadding})
	ragged, err := s.PerReplica(ctx, []any{[]float32{1}, []float32{2, 3, 4}}, logical.Annotation{})
	require.NoError(t, err)
	out, err = padded.Run(ctx, []float32{1}, pair{A: "static", B: ragged})
	require.NoError(t, err)
	require.Equal(t, []any{replicaValues{int32(1), int32(3)}, replicaValues{[]float32{1}, []float32{2, 3, 4}}},
		localValues(t, out, 2))
}

// deep returns a nest of n levels around x.
func deep(n int, x any) any {
	for range n {
		x = []any{x}
	}
	return x
}

// A nest has the same depth inside and outside of the step.
func TestNestsAreDeep(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	f := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any { return args[0] }, strategy.FunctionOptions{})
	for n, taken := range map[int]bool{0: true, 50: true, 98: true, 99: true, 100: false, 200: false} {
		out, err := f.Run(ctx, deep(n, float32(n)))
		if !taken {
			require.Equal(t, errkind.ValueError, errkind.KindOf(err))
			require.ErrorContains(t, err, "args: the nest has more than 100 levels")
			continue
		}
		require.NoError(t, err, n)
		for range n {
			out = out.([]any)[0]
		}
		require.Equal(t, []any{float32(n), float32(n)}, strategytest.Values(t, out.(*strategy.PerReplica), 2))
	}
}
