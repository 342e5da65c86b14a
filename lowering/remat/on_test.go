package remat_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The training step runs parts of its layers on one logical device, in a loop and in a block.
func TestAOTLargeOnInLayers(t *testing.T) {
	plugintest.Large(t)
	if !plugintest.TPUChild(t) {
		return
	}
	s := strategytest.Ahead(t, "v5e:4x4", strategy.Options{Replicas: 4, LogicalDevices: 4})
	layer := func(scope *model.Scope, x *graph.Node) *graph.Node {
		h := logical.OnDevice(1, x, func(x *graph.Node) *graph.Node {
			return graph.Tanh(layers.Dense(scope.In("up"), x, true,
				256))
		})
		h = logical.Split(graph.Mul(h, h), 1, 4)
		return graph.Add(x, logical.OnDevice(3, h, func(h *graph.Node) *graph.Node {
			return layers.Dense(scope.In("down"), h,
				true, 64)
		}))
	}
	for _, keep := range []remat.Policy{remat.Everything(), remat.Nothing()} {
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				x := loop.Layers(rc.Scope("layers"), 12, in[0], layer, loop.Options{Keep: keep})
				x = remat.Block(keep, x, func(x *graph.Node) *graph.Node { return layer(rc.Scope("last"), x) })
				return graph.ReduceAllMean(graph.Square(x))
			}, train.Options{}))
		c, err := step.Compiled(context.Background(), shapes.Make(dtypes.Float32, 4096, 64))
		require.NoError(t, err, keep)
		r, err := report.Of(c)
		require.NoError(t, err)
		t.Logf("%s: %d KiB of temporaries, %v", keep, r.Memory.Temporaries/1024, r.Collectives)
	}
}
