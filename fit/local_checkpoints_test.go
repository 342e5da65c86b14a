package fit_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// TestALostHostCostsStepsSinceTheLastSaveOnTheHosts gives each of eight processes its own folder.
// After the loss of a host fewer steps than two intervals of the local checkpoints are lost.
func TestALostHostCostsStepsSinceTheLastSaveOnTheHosts(t *testing.T) {
	const hosts = 8
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	sys := plugintest.System(t, hosts)
	dir := t.TempDir()
	folder := func(process int) string { return filepath.Join(dir, fmt.Sprint("host-", process)) }
	// life trains up to a step. The run then ends without a save, as if a host had died.
	life := func(to int64) (resumed int64, losses map[int64]float64) {
		t.Helper()
		losses = map[int64]float64{}
		errs := strategytest.OnProcesses(t, sys, simhost.Options{Processes: hosts}, strategy.Options{Replicas: hosts,
			Variables: logical.Rules{logical.MatchState("", logical.ShardParameters)}}, func(ctx context.Context,
			s *strategy.TPUStrategy) error {
			step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
				denseLoss(1), train.Options{}))
			result, err := fit.Run(ctx, step, fit.Dataset(dataset(t, 8).Repeat(-1)), fit.Options{Steps: 100, Every: 1,
				Resume: true, Logger: log},
				fit.Checkpoint(filepath.Join(dir, "far"), 10,
					fit.CheckpointOptions{Local: fit.LocalCheckpoints{Folder: folder(s.Process()), Every: 3}}),
				fit.Hook{Name: "dies", Record: func(_ context.Context, st *fit.State) error {
					if s.Process() == 0 {
						losses[st.Step()], _ = st.Value(fit.Loss)
					}
					if st.Step() == to {
						return &train.NonFiniteError{}
					}
					return nil
				}})
			if s.Process() == 0 {
				resumed = result.ResumedFrom
			}
			return err
		})
		for i, err := range errs {
			var ended *train.NonFiniteError
			require.ErrorAs(t, err, &ended, "process %d", i)
		}
		return resumed, losses
	}
	from, first := life(17)
	assert.EqualValues(t, 0, from)
	require.NoError(t, os.RemoveAll(folder(2))) // a new machine
	from, second := life(19)
	// On a slow machine the copies of step 15 may still be running when the run ends.
	assert.Contains(t, []int64{12, 15}, from, "not 10, that of the last far save")
	for _, step := range []int64{16, 17} {
		assert.Equal(t, first[step], second[step], "step %d", step)
	}

	// A shard of the newest local checkpoint cannot be read. One copy of it is sufficient; without
	// a copy, all hosts use the previous checkpoint.
	newest := func() int64 {
		kept, err := filepath.Glob(filepath.Join(dir, "host-0", "*", "step-*", "checkpoint.json")) // complete ones
		require.NoError(t, err)
		slices.Sort(kept)
		step, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(filepath.Dir(kept[len(kept)-1])), "step-"), 10, 64)
		require.NoError(t, err)
		return step
	}
	unreadable := func(step int64, hosts ...int) {
		for _, host := range hosts {
			shards, err := filepath.Glob(filepath.Join(folder(host), "*", fmt.Sprintf("step-%010d", step), "*",
				"host-0003.safetensors"))
			require.NoError(t, err)
			require.Len(t, shards, 1, "host %d", host)
			require.NoError(t, os.RemoveAll(shards[0]))
			require.NoError(t, os.Mkdir(shards[0], 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(shards[0], "file"), nil, 0o600)) // empty folders are removed
		}
	}
	last := newest()
	unreadable(last, 3)
	from, _ = life(20)
	assert.Equal(t, last, from)
	last = newest()
	unreadable(last, 3, 4)
	said.Reset()
	from, _ = life(20)
	assert.Less(t, from, last)
	assert.GreaterOrEqual(t, from, int64(10))
	assert.Contains(t, said.String(), "fit: process 3: checkpoint: corrupt", "the other hosts report the reason")
	for host := range hosts {
		require.NoError(t, os.RemoveAll(folder(host)))
	}
	from, second = life(19)
	assert.EqualValues(t, 10, from)

	// Both copies of two neighbors are lost.
	require.NoError(t, os.RemoveAll(folder(1)))
	require.NoError(t, os.RemoveAll(folder(2)))
	from, third := life(25)
	assert.EqualValues(t, 10, from)
	assert.Equal(t, second[19], third[19])

	// Local checkpoints belong to the checkpoints that store their name.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "far")))
	from, again := life(2)
	assert.EqualValues(t, 0, from)
	assert.Equal(t, first[2], again[2])
}

func TestSavesOnTheHostsHaveAFolderAndAnInterval(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	for _, near := range []fit.LocalCheckpoints{{Folder: "x"}, {Every: 3}, {Folder: "x", Every: -1},
		{Folder: "gs://bucket/x", Every: 3}} {
		_, err := fit.Run(t.Context(), dense(s, 2), fit.Batches(batches(3)), fit.Options{}, fit.Checkpoint(t.TempDir(), 2,
			fit.CheckpointOptions{Local: near}))
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v: %v", near, err)
	}
	// A single process also saves local checkpoints. A folder that cannot be created is an error
	// before the first step.
	dir := t.TempDir()
	_, err := fit.Run(t.Context(), dense(s, 2), fit.Batches(batches(5)), fit.Options{Steps: 5},
		fit.Checkpoint(filepath.Join(dir, "far"), 0,
			fit.CheckpointOptions{Local: fit.LocalCheckpoints{Folder: filepath.Join(dir, "near"), Every: 2}}))
	require.NoError(t, err)
	kept, err := filepath.Glob(filepath.Join(dir, "near", "*", "step-*"))
	require.NoError(t, err)
	assert.Len(t, kept, 2)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err = fit.Run(t.Context(), dense(strategytest.New(t, 2, 1), 2), fit.Batches(batches(5)), fit.Options{Steps: 5},
		fit.Checkpoint(filepath.Join(dir, "other"), 0, fit.CheckpointOptions{Local: fit.LocalCheckpoints{Folder: file,
			Every: 2}}))
	assert.ErrorContains(t, err, file)
}
