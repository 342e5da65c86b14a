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

// form is a form of the same training.
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

// forms are those that the tests sample, each value of each part at least once, or with the variable
// in the environment all of them.
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

// rounding is how far, relatively, a loss may be from that on one device: sums are taken in another
// order, and twenty steps carry on what that changes.
const rounding = 2e-5

// TestEachFormGivesTheLossesOfOneDevice trains for 20 steps in forms that give the same numbers. make
// forms takes all of them.
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

// TestStateInPartsIsGatheredAndScatteredWithinItsSplit holds that no logical device gets the part of
// a variable or of a gradient that another one has.
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
