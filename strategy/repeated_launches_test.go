package strategy_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// TestAStepSaysHowOftenItRuns increments each replica's part of a state up to a limit, or up to the
// maximum number of iterations of a launch.
func TestAStepSaysHowOftenItRuns(t *testing.T) {
	repeated := func(s *strategy.TPUStrategy, step strategy.StepFunc, name string) *strategy.Function {
		f := s.Function(step, strategy.FunctionOptions{Name: name})
		engine.Internal(f).SetMaxIterations(6)
		return f
	}
	for _, mesh := range [][2]int{{1, 1}, {2, 1}, {2, 2}} {
		s := strategytest.New(t, mesh[0], mesh[1])
		state, err := engine.Internal(s).NewZeroVariables(t.Context(), []shapes.Shape{shapes.Make(dtypes.Float32, 4)},
			[]strategy.VariableOptions{{Name: "counted", Annotation: logical.SplitInto(mesh[1])}})
		require.NoError(t, err)
		v := state[0]
		f := repeated(s, func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			n := rc.Assign(v, graph.OnePlus(rc.Read(v)))
			return []*graph.Node{rc.AllReduce(strategy.Sum, graph.ReduceAllSum(n)), n}
		}, "wrong")
		_, err = f.Run(t.Context())
		assert.ErrorContains(t, err, "Signature.While is set, but the first result is not a scalar of Bool")

		f = repeated(s, func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			n := rc.Assign(v, graph.OnePlus(rc.Read(v)))
			mean := rc.AllReduce(strategy.Mean, graph.ReduceAllMean(n))
			return []*graph.Node{graph.LessThan(mean, in[0]), n}
		}, "count")
		sum := float32(0)
		for _, c := range []struct{ limit, times float32 }{{4, 4}, {5.5, 2}, {0, 1}, {100, 6}} { // from 1 to 6 times
			out, err := f.Run(t.Context(), c.limit)
			require.NoError(t, err)
			sum += c.times
			got, err := out[1].Local(t.Context(), mesh[0]-1)
			require.NoError(t, err)
			assert.Equal(t, []float32{sum, sum, sum, sum}, tensors.MustCopyFlatData[float32](got), "%v, limit %v", mesh, c.limit)
		}
		assert.Empty(t, s.DistributedVariables(), "state is no variable of the scope")

		f = repeated(s, func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.GreaterThan(graph.ReduceAllSum(rc.Read(v)), in[0])}
		}, "apart")
		_, err = f.Run(t.Context(), float32(1))
		if mesh[0] > 1 {
			assert.ErrorContains(t, err, "may differ between replicas")
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, v.Close())
		_, err = f.Run(t.Context(), float32(1))
		assert.Error(t, err, "it is closed")
	}
}
