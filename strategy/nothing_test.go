package strategy_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
)

// A step need not give anything: the empty nest comes back, and what it writes is
// written.
func TestAStepMayGiveNothing(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		count, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		for name, nest := range map[string]any{
			"an empty list": []any{}, "an empty map": map[string]any{}, "no result": nil, "a text": "done",
			"empties in a nest": []any{map[string]any{"a": []any{}}, []any{}, nil}, "an empty struct": struct{}{},
		} {
			for _, args := range [][]any{nil, {float32(3)}, {[]any{float32(3), map[string]any{"x": []float32{1, 2}}}}, {[]any{}}} {
				for _, writes := range []bool{false, true} {
					f := s.NestFunction(func(rc *strategy.ReplicaContext, _ []any) any {
						if writes {
							rc.AssignAdd(count, float32(1))
						}
						return nest
					}, strategy.FunctionOptions{})
					require.NoError(t, count.Assign(ctx, float32(0)))
					for range 3 { // also when the program is known
						got, err := f.Run(ctx, args...)
						require.NoError(t, err, name)
						require.Equal(t, nest, got, name)
					}
					got, err := count.Local(ctx, 0)
					require.NoError(t, err)
					require.Equal(t, map[bool]float32{true: 3}[writes], got.Value())
				}
			}
		}
	})
}

// Nor does a plain function, bound or in a loop of steps.
func TestAFunctionMayGiveNothing(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		traced := 0
		f := s.Function(func(*strategy.ReplicaContext, []*graph.Node) []*graph.Node {
			traced++
			return nil
		}, strategy.FunctionOptions{})
		for range 2 {
			out, err := f.Run(ctx)
			require.NoError(t, err)
			require.Empty(t, out)
		}
		require.Equal(t, 1, traced)
		rows := [][]float32{{1, 2}, {3, 4}, {5, 6}, {7, 8}}
		steps, err := s.StackBatches(ctx, []any{rows, rows, rows}, logical.Annotation{})
		require.NoError(t, err)
		out, err := f.Run(ctx, steps)
		require.NoError(t, err)
		require.Empty(t, out)
		b, err := f.Bind(ctx, rows)
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, b.Launch(ctx))
			require.Empty(t, b.Results())
		}
		require.NoError(t, b.Close())
		// From a file too.
		c, err := f.Compiled(ctx, rows)
		require.NoError(t, err)
		var file bytes.Buffer
		require.NoError(t, stepfile.Save(&file, c))
		loaded, err := stepfile.Load(ctx, s, &file, nil)
		require.NoError(t, err)
		out, err = loaded.Run(ctx, rows)
		require.NoError(t, err)
		require.Empty(t, out)
		// The arguments are checked as ever.
		x, err := s.Mirror(ctx, rows, logical.Annotation{})
		require.NoError(t, err)
		require.NoError(t, x.Close())
		_, err = f.Run(ctx, x)
		require.ErrorIs(t, err, strategy.ErrClosed)
	})
}
