package strategy_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tpustrategy/logical"
	"tpustrategy/strategy"
)

func TestABoundHoldsItsArguments(t *testing.T) {
	ctx := context.Background()
	strat := newStrategy(t, 2, strategy.Options{Replicas: 2})
	f := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.AddScalar(in[0], 1)}
	}, strategy.FunctionOptions{})
	bind := func() *strategy.Bound {
		v, err := strat.Mirror(ctx, tensors.FromValue([]float32{1, 2}), logical.Annotation{})
		require.NoError(t, err)
		b, err := f.Bind(ctx, v) // nothing but the Bound knows v from here on
		require.NoError(t, err)
		return b
	}
	b := bind()
	defer b.Close()
	for range 5 {
		runtime.GC()
		require.NoError(t, b.Launch(ctx))
	}
	got, err := b.Results()[0].Local(ctx, 1)
	require.NoError(t, err)
	assert.Equal(t, []float32{2, 3}, got.Value())
}
