package loop_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The tensors of the loop's layers and of blocks are split over some of the logical axes. The
// stacked variables are split over these axes and over the replicas.
func TestLoopOverNamedAxesMatchesOneDevice(t *testing.T) {
	sys := plugintest.System(t, 8)
	losses := func(t *testing.T, opts strategy.Options, keep remat.Policy) (all []float64, vars *strategy.Variables) {
		s := strategytest.On(t, sys, opts)
		store := strategytest.SeededStore()
		step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				return strategytest.NamedOver(rc, in, func(x *graph.Node) *graph.Node {
					layer := func(scope *model.Scope, x *graph.Node) *graph.Node {
						return strategytest.NamedLayer(s.LogicalMesh(), scope, x)
					}
					x = loop.Layers(rc.Scope("layers"), 2, x, layer, loop.Options{Keep: keep})
					return remat.Block(keep, x, func(x *graph.Node) *graph.Node { return layer(rc.Scope("last"), x) })
				})
			}, train.Options{}))
		return strategytest.NamedLosses(t, step, 0, 4), s.Variables(store)
	}
	want, _ := losses(t, strategy.Options{Replicas: 1}, remat.Everything())
	for _, c := range []struct {
		replicas int
		axes     []string
		keep     remat.Policy
		up       []int // what a device holds of the stack of 2 x 8 x 16
	}{
		{1, []string{"model", "sequence", "expert"}, remat.Everything(), []int{2, 8, 8}},
		{2, []string{"model", "sequence"}, remat.Nothing(), []int{2, 4, 8}},
	} {
		t.Run(fmt.Sprint(c.replicas, c.axes), func(t *testing.T) {
			axes := strategytest.Axes(c.axes...)
			mesh, err := logical.NewMesh(0, axes...)
			require.NoError(t, err)
			got, vars := losses(t, strategy.Options{Replicas: c.replicas, LogicalAxes: axes, Variables: logical.Rules{
				logical.Match(`layers/up/.*weights`, strategytest.Over(mesh, "", "replica", "model")),
				logical.Match(`layers/down/.*weights`, strategytest.Over(mesh, "", "model", "sequence")),
				logical.Match(`layers/query/.*weights`, strategytest.Over(mesh, "", "", "model")),
				logical.Match(`last/up/.*weights`, strategytest.Over(mesh, "sequence", "model")),
			}}, c.keep)
			assert.InDeltaSlice(t, want, got, 2e-5)
			up, ok := vars.Lookup("/layers/up/dense/weights")
			require.True(t, ok)
			assert.Equal(t, c.up, up.Shards()[0].Size)
		})
	}
}
