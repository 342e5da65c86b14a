package strategy_test

import (
	"context"
	"io"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
)

// Train on all cores and evaluate on one: a step of one strategy reads the current values of
// another strategy's variables in each run.
func TestAStepReadsAnotherStrategysVariables(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 4)
	for _, mesh := range [][2]int{{4, 1}, {2, 2}, {1, 4}} {
		train, err := strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), Replicas: mesh[0],
			LogicalDevices: mesh[1]})
		require.NoError(t, err)
		one, err := strategy.New(sys, strategy.Options{Compiler: plugintest.Programs(t), Replicas: 1})
		require.NoError(t, err)
		split := logical.Annotation{}
		if mesh[1] > 1 {
			split = logical.SplitInto(mesh[1])
		}
		weights, err := train.NewVariable(ctx, []float32{1, 2, 3, 4},
			strategy.VariableOptions{Aggregation: strategy.AggregateMean, Annotation: split})
		require.NoError(t, err)
		count, err := train.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		step := train.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			rc.AssignAdd(weights, graph.OnesLike(rc.Read(weights)))
			rc.AssignAdd(count, float32(1))
			return nil
		}, strategy.FunctionOptions{})
		evaluate := one.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(rc.Read(weights), in[0]), rc.ReadReduced(count)}
		}, strategy.FunctionOptions{})
		bound, err := evaluate.Bind(ctx, []float32{10, 10, 10, 10})
		require.NoError(t, err)
		for i := range 3 {
			_, err := step.Run(ctx)
			require.NoError(t, err)
			n := float32(i + 1)
			want := []any{[]float32{11 + n, 12 + n, 13 + n, 14 + n}}
			out, err := evaluate.Run(ctx, []float32{10, 10, 10, 10})
			require.NoError(t, err)
			require.Equal(t, want, strategytest.Values(t, out[0], 1))
			require.Equal(t, []any{n * float32(mesh[0])}, strategytest.Values(t, out[1], 1))
			require.NoError(t, bound.Launch(ctx))
			require.Equal(t, want, strategytest.Values(t, bound.Results()[0], 1))
		}
		require.NoError(t, bound.Close())
		// The variable is read-only. The reverse is an error, because one core does not have the
		// data for all.
		_, err = one.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			rc.Assign(weights, []float32{0, 0, 0, 0})
			return nil
		}, strategy.FunctionOptions{}).Run(ctx)
		require.ErrorIs(t, err, strategy.ErrOtherStrategy)
		mine, err := one.NewVariable(ctx, float32(1), strategy.VariableOptions{})
		require.NoError(t, err)
		_, err = train.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.Read(mine)}
		}, strategy.FunctionOptions{}).Run(ctx)
		require.ErrorIs(t, err, strategy.ErrOtherStrategy)
		// The step cannot be saved, because a file cannot identify the other strategy.
		c, err := evaluate.Compiled(ctx, []float32{10, 10, 10, 10})
		require.NoError(t, err)
		require.ErrorContains(t, stepfile.Save(t.Context(), io.Discard, c), "another strategy's")
		require.NoError(t, one.Close())
		require.NoError(t, train.Close())
	}
}
