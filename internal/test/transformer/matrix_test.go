package transformer_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/report"
)

// form is a combination of mesh and options for the same training.
type form struct {
	replicas, logicalDevices int
	state                    logical.StateSharding
	keep                     remat.Policy
	loop, sgd                bool
}

func (f form) String() string {
	layers, with := "unrolled", "Adam"
	if f.loop {
		layers = "loop"
	}
	if f.sgd {
		with = "SGD"
	}
	return fmt.Sprintf("%dx%d %s %s %s %s", f.replicas, f.logicalDevices, f.state, f.keep, layers, with)
}

func (f form) config() transformer.Config {
	c := transformer.Tiny()
	c.Shared, c.Keep, c.Loop = strategytest.Share(f.state, 2), f.keep, f.loop
	if f.sgd {
		c.Optimizer = func() optimizer.Interface {
			return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done()
		}
	}
	return c
}

// forms returns the tested combinations. If TPUSTRATEGY_FORMS is set, it returns all of them.
// Otherwise it returns a sample that includes each value at least once.
func forms() (all []form) {
	if os.Getenv("TPUSTRATEGY_FORMS") == "" {
		return []form{
			{8, 1, logical.ShardParameters, remat.Nothing(), true, false},
			{4, 2, logical.ShardParameters, remat.Everything(), false, true},
			{4, 2, logical.ShardGradients, remat.Products(), true, false},
			{2, 4, logical.ShardOptimizer, remat.Nothing(), false, false},
			{1, 8, logical.ShardNothing, remat.Nothing(), true, true},
		}
	}
	for _, mesh := range [][2]int{{8, 1}, {4, 2}, {2, 4}, {1, 8}} {
		for state := logical.ShardNothing; state <= logical.ShardParameters; state++ {
			for _, keep := range []remat.Policy{remat.Everything(), remat.Nothing()} {
				for _, form := range []form{{}, {loop: true}, {sgd: true}, {loop: true, sgd: true}} {
					form.replicas, form.logicalDevices, form.state, form.keep = mesh[0], mesh[1], state, keep
					all = append(all, form)
				}
			}
		}
	}
	return all
}

// rounding is the largest relative difference between a loss and the loss on one device. The order
// of summation differs, and the differences grow over twenty steps.
const rounding = 2e-5

// TestEachFormGivesTheLossesOfOneDevice compares the losses of 20 steps with the losses on one
// device. make forms tests all combinations.
func TestEachFormGivesTheLossesOfOneDevice(t *testing.T) {
	sys := plugintest.System(t, devices)
	const steps = 20
	want := map[bool][]float64{}
	for _, sgd := range []bool{false, true} {
		want[sgd] = losses(t, sys, form{sgd: sgd}.config(), 1, 1, steps)
		require.Less(t, want[sgd][steps-1], want[sgd][0], "it learns")
	}
	for _, f := range forms() {
		t.Run(f.String(), func(t *testing.T) {
			got := losses(t, sys, f.config(), f.replicas, f.logicalDevices, steps)
			t.Log(got[0], got[steps-1], want[f.sgd][steps-1])
			assert.InEpsilonSlice(t, want[f.sgd], got, rounding)
		})
	}
}

// TestStateInPartsIsGatheredAndScatteredWithinItsSplit checks that sharded state is gathered and
// scattered over the replicas only, not over the logical devices.
func TestStateInPartsIsGatheredAndScatteredWithinItsSplit(t *testing.T) {
	for _, state := range []logical.StateSharding{logical.ShardGradients, logical.ShardParameters} {
		c := form{loop: true, state: state, keep: remat.Nothing()}.config()
		s := strategytest.On(t, plugintest.System(t, devices), c.Options(4, 2))
		x, err := c.Step(s, model.NewStore()).Compiled(t.Context(), c.TokensShape())
		require.NoError(t, err)
		r, err := report.Of(x)
		require.NoError(t, err)
		over := map[string]bool{}
		for _, c := range r.Collectives {
			over[c.Kind+" over "+c.Axis] = true
		}
		assert.Equal(t, map[string]bool{"all-reduce over replica": true, "all-reduce over logical": true,
			"all-gather over replica":     true,
			"reduce-scatter over replica": true}, over, state)
	}
}
