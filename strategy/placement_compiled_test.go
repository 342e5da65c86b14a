package strategy_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hlotest"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// placedWork has operations that the compilers may consider cheap, and a product, which is
// expensive.
var placedWork = []func(x *graph.Node) *graph.Node{
	func(x *graph.Node) *graph.Node { return graph.Mul(graph.AddScalar(x, 1), x) },
	func(x *graph.Node) *graph.Node {
		for range 12 {
			x = graph.Tanh(graph.Sin(x))
		}
		return x
	},
	func(x *graph.Node) *graph.Node { return graph.Softmax(x, -1) },
	func(x *graph.Node) *graph.Node { // a layer norm
		x = graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMean, -1))
		return graph.Div(x, graph.Sqrt(graph.AddScalar(graph.ReduceAndKeep(graph.Square(x), graph.ReduceMean, -1), 1e-5)))
	},
	func(x *graph.Node) *graph.Node {
		return graph.Mul(x, graph.ReduceAndKeep(graph.Exp(x), graph.ReduceSum, -1))
	},
	func(x *graph.Node) *graph.Node { return graph.MatMul(x, x) },
}

// placedPrograms checks the compiled code of regions on one device each, by On and by Assign: each
// remains a branch, forward and backward.
func placedPrograms(t *testing.T, s *strategy.TPUStrategy) {
	for name, place := range map[string]func(x *graph.Node, k int, f func(x *graph.Node) *graph.Node) *graph.Node{
		"on": func(x *graph.Node, k int, f func(x *graph.Node) *graph.Node) *graph.Node {
			return logical.OnDevice(k, x, f)
		},
		"assign": func(x *graph.Node, k int, f func(x *graph.Node) *graph.Node) *graph.Node {
			return logical.Assign(f(x), k)
		},
	} {
		c, err := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) (all []*graph.Node) {
			for k, f := range placedWork {
				y := place(in[0], k, f)
				all = append(all, y, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, y)), in[0])[0])
			}
			return all
		}, strategy.FunctionOptions{}).Compiled(context.Background(), shapes.Make(dtypes.Float32, 256, 256))
		require.NoError(t, err)
		conditionals, alone := 0, 0
		for _, op := range hlotest.Ops(t, c.Program) {
			switch {
			case op.Code == "conditional":
				conditionals++
			case slices.Contains([]string{"tanh", "sine", "cosine", "exponential", "dot", "convolution"}, op.Code):
				assert.True(t, op.Guarded, "%s: every device runs %s", name, op.Code)
				alone++
			}
		}
		assert.Equal(t, 2*len(placedWork), conditionals, name)
		assert.Positive(t, alone, name)
	}
}

func TestTheCompilerKeepsWhatIsPlaced(t *testing.T) { placedPrograms(t, strategytest.New(t, 1, 8)) }

func TestAOTTheCompilerKeepsWhatIsPlaced(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	for _, slice := range []string{"v5e:2x4", "v5p:2x2x2"} {
		placedPrograms(t, strategytest.Ahead(t, slice, strategy.Options{LogicalDevices: 8}))
	}
}
