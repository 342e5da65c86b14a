package checkpoint_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A run is saved with one mesh and one sharding of the state, and training resumes with others.
func TestCheckpointsDoNotNoticeWhoHoldsTheState(t *testing.T) {
	sys := plugintest.System(t, 8)
	open := func(r, p int, state logical.StateSharding) *strategy.TPUStrategy {
		return strategytest.On(t, sys, strategy.Options{Replicas: r, LogicalDevices: p,
			Variables: append(strategytest.AnnotatedRules(p), strategytest.Share(state, 1)...)})
	}
	from := open(4, 2, logical.ShardParameters)
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(from, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Annotated(2),
		train.Options{}))
	strategytest.Losses(t, step, 0, 3)
	d := openRun(t)
	assert.NoError(t, d.Save(t.Context(), 3, checkpoint.StrategyGroup(from, store), checkpoint.SaveOptions{}))
	want := strategytest.Losses(t, step, 3, 6)
	for _, to := range []struct {
		r, p  int
		state logical.StateSharding
	}{{1, 1, logical.ShardNothing}, {8, 1, logical.ShardParameters}, {2, 4, logical.ShardOptimizer},
		{4, 2, logical.ShardGradients}} {
		t.Run(fmt.Sprintf("%dx%d %s", to.r, to.p, to.state), func(t *testing.T) {
			s := open(to.r, to.p, to.state)
			store := strategytest.SeededStore()
			restoration(t, d, checkpoint.StrategyGroup(s, store), checkpoint.RestoreOptions{})
			step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Annotated(to.p),
				train.Options{}))
			assert.InDeltaSlice(t, want, strategytest.Losses(t, step, 3, 6), 1e-5)
			d := openRun(t)
			assert.NoError(t, d.Save(t.Context(), 6, checkpoint.StrategyGroup(s, store), checkpoint.SaveOptions{}))
			restoration(t, d, checkpoint.StrategyGroup(s, store), checkpoint.RestoreOptions{}) // onto the devices
			strategytest.Losses(t, step, 6, 7)
		})
	}
}
