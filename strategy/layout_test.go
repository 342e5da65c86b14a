package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestSplitDividesTheBytesEachDeviceHolds(t *testing.T) {
	ctx := context.Background()
	perDevice := map[int]int64{}
	for _, p := range []int{1, 2, 4} {
		strat := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 1, LogicalDevices: p,
			Variables: logical.Rules{
				logical.Match(`hidden/.*weights`, logical.SplitInto(1, p)),
			}})
		store := model.NewStore()
		step := strategytest.OK(train.New(strat, store, optimizer.StochasticGradientDescent().Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				h := logical.Split(layers.Dense(rc.Scope("hidden"), in[0], true, 1024), 1, p)
				return graph.ReduceAllMean(graph.Square(graph.Sub(graph.ReduceSum(h, -1), graph.Squeeze(in[1]))))
			}, train.Options{}))
		x, y := strategytest.Sums(8, 256)
		_, err := step.Run(ctx, x, y)
		require.NoError(t, err)
		v, ok := strat.Variables(store).Lookup("/hidden/dense/weights")
		require.True(t, ok)
		assert.Equal(t, 4*256*1024/p, v.BytesPerDevice())
		compiled, err := step.Compiled(ctx, x, y)
		require.NoError(t, err)
		stats, err := compiled.Executable.Executable().MemoryStats()
		require.NoError(t, err)
		perDevice[p] = stats.Arguments
		// Every variable that the step writes is donated, and the compiler aliases all of them.
		variables := 0
		for _, v := range strat.Variables(store).All() {
			if v.Path() != "/optimizers/learning_rate" { // read, never written
				variables += v.BytesPerDevice()
			}
		}
		assert.EqualValues(t, variables, stats.Alias)
		t.Logf("%d logical devices: arguments %d, aliased %d of %d bytes of variables", p, stats.Arguments, stats.Alias,
			variables)
	}
	weights := int64(4 * 256 * 1024)
	assert.Equal(t, weights/2, perDevice[1]-perDevice[2])
	assert.Equal(t, weights/4, perDevice[2]-perDevice[4])
}
