package remat_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func mlp(scope *model.Scope, x *graph.Node) *graph.Node {
	h := remat.Name(layers.Dense(scope.In("up"), x, true, 256), "up")
	h = graph.Tanh(graph.Mul(h, graph.Sigmoid(h)))
	return graph.Add(x, graph.Tanh(layers.Dense(scope.In("down"), h, true, 64)))
}

// temporary returns the bytes of temporary memory of a training step with the given layers.
func temporary(t *testing.T, s *strategy.TPUStrategy, rows int, layers func(rc *strategy.ReplicaContext,
	x *graph.Node) *graph.Node) int64 {
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Square(layers(rc, in[0])))
		}, train.Options{}))
	c, err := step.Compiled(context.Background(), shapes.Make(dtypes.Float32, rows, 64))
	require.NoError(t, err)
	r, err := report.Of(c)
	require.NoError(t, err)
	return r.Memory.Temporaries
}

// temporaries returns the bytes of temporary memory of a training step with 12 layers, with the
// layers in consecutive blocks and in a loop.
func temporaries(t *testing.T, s *strategy.TPUStrategy, rows int, keep remat.Policy) (blocks, looped int64) {
	blocks = temporary(t, s, rows, func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		for i := range 12 {
			x = remat.Block(keep, x, func(x *graph.Node) *graph.Node { return mlp(rc.Scope(fmt.Sprintf("layer_%d", i)), x) })
		}
		return x
	})
	looped = temporary(t, s, rows, func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		return loop.Layers(rc.Scope("layers"), 12, x, mlp, loop.Options{Keep: keep})
	})
	t.Logf("%s: %d KiB in blocks, %d KiB in a loop", keep, blocks/1024, looped/1024)
	return blocks, looped
}

// falls checks that the compiler does not undo the policies by storing values that are computed
// twice. most contains the maximum temporary memory for each policy, relative to the memory without
// a policy.
func falls(t *testing.T, s *strategy.TPUStrategy, rows int, most map[string]float64) {
	blocks, looped := temporaries(t, s, rows, remat.Everything())
	for _, keep := range []remat.Policy{remat.Products(), remat.Nothing()} {
		if part, ok := most[keep.String()]; ok {
			b, l := temporaries(t, s, rows, keep)
			assert.Less(t, float64(b), part*float64(blocks), "blocks, %s", keep)
			assert.Less(t, float64(l), part*float64(looped), "loop, %s", keep)
		}
	}
}

func TestMemoryFalls(t *testing.T) {
	falls(t, strategytest.New(t, 1, 1), 512, map[string]float64{"Products()": 0.6, "Nothing()": 0.25})
}

func TestAOTLargeLoopOnHost(t *testing.T) {
	plugintest.Large(t)
	if plugintest.TPUChild(t) {
		s := strategytest.Ahead(t, "v5e:2x2", strategy.Options{})
		looped := func(keep remat.Policy) int64 {
			return temporary(t, s, 4<<14, func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
				return loop.Layers(rc.Scope("layers"), 12, x, mlp, loop.Options{Keep: keep})
			})
		}
		assert.Less(t, float64(looped(remat.Products().OnHost())), 0.3*float64(looped(remat.Products())))
	}
}

func TestAOTLargeMemoryFalls(t *testing.T) {
	plugintest.Large(t)
	if plugintest.TPUChild(t) {
		falls(t, strategytest.Ahead(t, "v5e:2x2", strategy.Options{}), 4<<15, map[string]float64{"Nothing()": 0.5})
	}
}
