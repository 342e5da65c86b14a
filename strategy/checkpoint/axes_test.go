package checkpoint_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Variables that are sharded over logical axes and replicas are saved, and training resumes with
// different axes.
func TestCheckpointsDoNotNoticeTheAxes(t *testing.T) {
	sys := plugintest.System(t, 8)
	shared := func(replicas int, names ...string) strategy.Options {
		opts := strategytest.NamedOptions(replicas, strategytest.Axes(names...)...)
		mesh, err := logical.NewMesh(0, opts.LogicalAxes...)
		require.NoError(t, err)
		opts.Variables = append(logical.Rules{logical.Match(`up/.*weights`, strategytest.Over(mesh, "replica", "model"))},
			opts.Variables...)
		opts.Variables[4].Optional = true // the first is before it
		return opts
	}
	from := strategytest.On(t, sys, shared(2, "model", "sequence"))
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(from, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Named,
		train.Options{}))
	strategytest.NamedLosses(t, step, 0, 2)
	d := openRun(t)
	require.NoError(t, d.Save(t.Context(), 2, checkpoint.StrategyGroup(from, store), checkpoint.SaveOptions{}))
	want := strategytest.NamedLosses(t, step, 2, 4)
	for _, opts := range []strategy.Options{shared(4, "model"), strategytest.NamedOptions(1, strategytest.Axes("sequence",
		"model")...)} {
		t.Run(fmt.Sprint(opts.Replicas, opts.LogicalAxes), func(t *testing.T) {
			s := strategytest.On(t, sys, opts)
			store := strategytest.SeededStore()
			restoration(t, d, checkpoint.StrategyGroup(s, store), checkpoint.RestoreOptions{})
			step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Named,
				train.Options{}))
			assert.InDeltaSlice(t, want, strategytest.NamedLosses(t, step, 2, 4), 1e-5)
		})
	}
}
