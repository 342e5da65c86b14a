package strategy_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestABoundHoldsItsArguments(t *testing.T) {
	ctx := context.Background()
	strat := strategytest.New(t, 2, 1)
	f := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.AddScalar(in[0], 1)}
	}, strategy.FunctionOptions{})
	bind := func() *strategy.Binding {
		v, err := strat.Mirror(ctx, tensors.FromValue([]float32{1, 2}), logical.Annotation{})
		require.NoError(t, err)
		b, err := f.Bind(ctx, v) // only the Binding references v from here on
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

// A reader that still uses the loss of a step does not prevent the next run.
func TestAResultThatIsBeingReadDoesNotStopTheNextLaunch(t *testing.T) {
	ctx := context.Background()
	strat := strategytest.New(t, 2, 2)
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, in[0]), graph.MulScalar(in[0], 2)}
	}, strategy.FunctionOptions{})
	b, err := f.Bind(ctx, tensors.FromValue([]float32{1, 2}))
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, b.Launch(ctx))
	stop, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, v := range b.Results() {
				if _, err := v.Local(ctx, 1); err != nil {
					assert.ErrorIs(t, err, strategy.ErrClosed)
				}
			}
		}
	}()
	for range 2000 {
		require.NoError(t, b.Launch(ctx))
	}
	close(stop)
	<-read
	got, err := b.Results()[1].Local(ctx, 0)
	require.NoError(t, err)
	assert.Equal(t, []float32{2, 4}, got.Value())
}
