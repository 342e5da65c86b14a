package fit_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// TestAResumedRunHasTheCountersOfTheScope counts steps and rows in variables that are not trained,
// and resumes on other meshes. A checkpoint without a counter is an error that names the counter,
// unless the run accepts it.
func TestAResumedRunHasTheCountersOfTheScope(t *testing.T) {
	ctx := context.Background()
	run := func(r, p int, dir string, to int64, o fit.CheckpointOptions, without ...string) ([2]float64, error) {
		s := strategytest.New(t, r, p)
		var counters []*strategy.Variable
		for _, opts := range []strategy.VariableOptions{
			{Name: "global_step", Aggregation: strategy.AggregateFirst},
			{Name: "rows", Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum},
		} {
			initial := any(float32(0))
			if opts.Name == "global_step" {
				initial = int64(0)
			}
			v, err := s.NewVariable(ctx, initial, opts)
			require.NoError(t, err)
			counters = append(counters, v)
			for _, name := range without {
				if v.Path() == name {
					o.Exclude = append(o.Exclude, checkpoint.Variable(v))
				}
			}
		}
		loss := denseLoss(2)
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				rc.AssignAdd(counters[0], int64(1))
				rc.AssignAdd(counters[1], float32(in[0].Shape().Dimensions[0]))
				return loss(rc, in)
			}, train.Options{Metrics: []train.Metric{train.MeanLoss()}}))
		held := strategytest.OK(train.NewEvaluation(s, step.Store(), loss, train.Options{}))
		_, err := fit.Run(ctx, step, fit.Batches(batches(-1)), fit.Options{Steps: to, Every: 2, Resume: true},
			fit.Evaluate("held", held, fit.Batches(batches(2)), 4), fit.Checkpoint(dir, 2, o))
		var got [2]float64
		for i, v := range counters {
			value, failed := v.Value(ctx)
			require.NoError(t, failed)
			got[i] = strategytest.Numbers(t, value)[0]
		}
		return got, err
	}
	for _, background := range []bool{false, true} {
		dir, o := t.TempDir(), fit.CheckpointOptions{Background: background}
		_, err := run(1, 1, dir, 4, o)
		require.NoError(t, err)
		rows := 0.
		for i, mesh := range [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}} {
			got, err := run(mesh[0], mesh[1], dir, int64(8+4*i), o)
			require.NoError(t, err)
			require.Equal(t, float64(8+4*i), got[0], "global_step on %v", mesh)
			if i == 0 {
				rows = got[1] / 8
			}
			require.InDelta(t, rows*float64(8+4*i), got[1], 1e-3, "rows on %v", mesh)
		}
	}
	dir := t.TempDir()
	_, err := run(2, 1, dir, 4, fit.CheckpointOptions{}, "global_step")
	require.NoError(t, err)
	_, err = run(2, 1, dir, 8, fit.CheckpointOptions{})
	var mismatch *checkpoint.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, []string{"global_step"}, mismatch.Missing)
	require.ErrorContains(t, err, "AllowMissing")
	got, err := run(2, 1, dir, 8, fit.CheckpointOptions{Restore: checkpoint.RestoreOptions{AllowMissing: true}})
	require.NoError(t, err)
	require.Equal(t, 4., got[0], "it began anew")
}
