package fit_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// TestShardsGoOnAnyHosts saves in the background on two hosts and resumes on four hosts, on one
// host, and from an object store. The results equal the results of one run on one host.
func TestShardsGoOnAnyHosts(t *testing.T) {
	sys := plugintest.System(t, 4)
	dir := t.TempDir()
	storage.Register("shardsoffit", func(context.Context, string) (storage.Store, error) { return storage.Directory(dir) })
	want := map[int64]float64{}
	_, err := fit.Run(context.Background(), dense(strategytest.New(t, 2, 1), 2), fit.Batches(batches(-1)),
		fit.Options{Steps: 16, Every: 1}, losses(want))
	require.NoError(t, err)
	place, background := dir, checkpoint.Retention{Every: 4}
	for i, size := range []struct {
		hosts, replicas, logical int
		to                       int64
	}{{2, 2, 2, 4}, {4, 4, 1, 8}, {1, 1, 2, 12}, {2, 4, 1, 16}} {
		if i == 3 {
			place = "shardsoffit://bucket/run"
		}
		got := make([]map[int64]float64, size.hosts)
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: size.hosts},
			strategy.Options{Replicas: size.replicas, LogicalDevices: size.logical,
				Variables: strategytest.Share(logical.ShardOptimizer, 0)},
			func(ctx context.Context, s *strategy.TPUStrategy) error {
				got[s.Process()] = map[int64]float64{}
				step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
					denseLoss(2), train.Options{Metrics: []train.Metric{train.MeanLoss()}}))
				result, err := fit.Run(ctx, step, fit.Batches(batches(-1)), fit.Options{Steps: size.to, Every: 1, Resume: true},
					losses(got[s.Process()]), fit.Checkpoint(place, 3, fit.CheckpointOptions{Keep: 1, Background: i < 3,
						Retention: background}))
				assert.Equal(t, size.to-4, result.ResumedFrom)
				return err
			}))
		point, err := fit.LatestSnapshot(t.Context(), place)
		require.NoError(t, err)
		assert.Equal(t, size.to, point.Step)
		for host := range got {
			for step := size.to - 3; step <= size.to; step++ {
				assert.InDelta(t, want[step], got[host][step], 1e-4, "%+v: host %d, step %d", size, host, step)
			}
		}
	}
	m, err := checkpoint.OpenManager(t.Context(), dir, checkpoint.ManagerOptions{})
	require.NoError(t, err)
	all, err := m.Steps(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int64{4, 8, 12, 16}, all)
}

// TestADamagedShardIsPassedOver also resumes without the option Background from checkpoints that
// were saved with it.
func TestADamagedShardIsPassedOver(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	dir := t.TempDir()
	background := fit.CheckpointOptions{Background: true}
	want, got := map[int64]float64{}, map[int64]float64{}
	_, err := fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), fit.Options{Steps: 6, Every: 1}, losses(want),
		fit.Checkpoint(dir, 2, background))
	require.NoError(t, err)
	_, err = fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), fit.Options{Steps: 6}, fit.Checkpoint(dir, 2, background))
	require.ErrorContains(t, err, "Options.Resume is not set")
	damaged := shardsOf(t, filepath.Join(dir, "step-0000000006"))
	data, err := os.ReadFile(damaged)
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(damaged, data, 0o644))
	var log bytes.Buffer
	result, err := fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), fit.Options{Steps: 6, Every: 1, Resume: true,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}, losses(got), fit.Checkpoint(dir, 2, background))
	require.NoError(t, err)
	assert.Equal(t, int64(4), result.ResumedFrom)
	assert.Contains(t, log.String(), "skipping a damaged checkpoint")
	for step, loss := range got {
		assert.Equal(t, want[step], loss)
	}
	result, err = fit.Run(ctx, dense(s, 2), fit.Batches(batches(-1)), fit.Options{Steps: 8, Resume: true},
		fit.Checkpoint(dir, 2))
	require.NoError(t, err)
	assert.Equal(t, int64(6), result.ResumedFrom)
}

// TestAnOldFolderIsResumed resumes from a folder in which an earlier version of this module saved
// one file for each step, and keeps the best checkpoint in another folder.
func TestAnOldFolderIsResumed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/directory")))
	want, got := map[int64]float64{}, map[int64]float64{}
	_, err := fit.Run(t.Context(), dense(strategytest.New(t, 2, 1), 2), fit.Batches(batches(-1)), fit.Options{Steps: 8},
		losses(want))
	require.NoError(t, err)
	result, err := fit.Run(t.Context(), dense(strategytest.New(t, 2, 1), 2), fit.Batches(batches(-1)),
		fit.Options{Steps: 8, Resume: true}, losses(got),
		fit.Checkpoint(filepath.Join(dir, "run"), 2, fit.CheckpointOptions{Keep: 2}), fit.KeepBest(filepath.Join(dir, "best"),
			fit.Loss))
	require.NoError(t, err)
	assert.Equal(t, int64(6), result.ResumedFrom)
	assert.Equal(t, []string{"step-0000000006", "step-0000000008"}, names(t, filepath.Join(dir, "run")))
	assert.Len(t, names(t, filepath.Join(dir, "best")), 1)
	for step, loss := range got {
		assert.InDelta(t, want[step], loss, 1e-5, "step %d", step)
	}
}

// TestTheBestStay keeps the best checkpoints by a metric of the run in addition to the newest.
func TestTheBestStay(t *testing.T) {
	dir := t.TempDir()
	value := map[int64]float64{1: 5, 2: 1, 3: 3, 4: 2, 5: 4, 6: 6}
	_, err := fit.Run(context.Background(), dense(strategytest.New(t, 1, 1), 2), fit.Batches(batches(6)),
		fit.Options{Every: 1},
		fit.Each(1, func(_ context.Context, s *fit.State) error { s.SetMetric("mine", value[s.Step()]); return nil }),
		fit.Checkpoint(dir, 1, fit.CheckpointOptions{Keep: 1, Retention: checkpoint.Retention{Best: 2, Metric: "mine"}}))
	require.NoError(t, err)
	assert.Equal(t, []string{"step-0000000002", "step-0000000004", "step-0000000006"}, names(t, dir))
}
