package fit_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// TestARefusedResumeChangesNoFile resumes a run of two processes in ways that are refused. All
// files of the run are unchanged, including the records of its goodput.
func TestARefusedResumeChangesNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TPUSTRATEGY_GOODPUT", filepath.Join(dir, "goodput"))
	systems := plugintest.System(t, 4)
	run := func(processes, replicas, width int, options fit.Options, hooks ...fit.Hook) []error {
		return strategytest.OnProcesses(t, systems, simhost.Options{Processes: processes},
			strategy.Options{Replicas: replicas, LogicalDevices: 4 / replicas}, func(ctx context.Context,
				s *strategy.TPUStrategy) error {
				step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), denseLoss(width),
					train.Options{}))
				_, err := fit.Run(ctx, step, fit.Dataset(dataset(t, 8).Repeat(-1)), options, append([]fit.Hook{
					fit.Watch(watchdog.Options{Dir: dir}), fit.Goodput(), fit.CSV(filepath.Join(dir, "losses.csv")),
					fit.Curve(filepath.Join(dir, "curve.html")), fit.Events(filepath.Join(dir, "events")),
					fit.KeepBest(filepath.Join(dir, "best"), fit.Loss),
					fit.Checkpoint(filepath.Join(dir, "run"), 5)}, hooks...)...)
				return err
			})
	}
	options := fit.Options{Steps: 9, Every: 3, Resume: true, Settings: map[string]string{"batch": "32"}}
	strategytest.NoErrors(t, run(2, 2, 2, options))
	files := func() map[string]string {
		all := map[string]string{}
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			all[path] = string(text)
			return err
		}))
		return all
	}
	before := files()
	require.Contains(t, before, filepath.Join(dir, "status", "host-0001.json"))
	require.Contains(t, before[filepath.Join(dir, "goodput")], "goodput ")

	other, wrong := options, errors.New("a hook of one process")
	other.Settings = map[string]string{"batch": "64"}
	begun := options
	begun.Resume = false
	for name, c := range map[string]struct {
		errs []error
		want error
	}{
		"other settings":   {run(2, 2, 2, other), fit.ErrResume},
		"one process":      {run(1, 4, 2, other), fit.ErrResume},
		"more processes":   {run(4, 4, 2, other), fit.ErrResume},
		"another model":    {run(2, 2, 3, options), fit.ErrResume},
		"without a resume": {run(2, 2, 2, begun), fit.ErrResume},
		"a hook": {run(2, 2, 2, options, fit.Hook{Name: "wrong", Begin: func(context.Context,
			*fit.State) error {
			return wrong
		}}), wrong},
	} {
		for process, err := range c.errs {
			assert.ErrorIs(t, err, c.want, "%s, process %d", name, process)
			if c.want == fit.ErrResume {
				assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%s, process %d", name, process)
			}
		}
	}
	after := files()
	for path := range before {
		assert.Equal(t, before[path], after[path], path)
	}
	for path := range after {
		if !strings.HasPrefix(path, filepath.Join(dir, "events")) { // a new life writes a new file
			_, known := before[path]
			assert.True(t, known, "%s is new", path)
		}
	}
}

// TestAFirstRunThatIsRefusedLeavesItsError checks the error in the record that `tpustrategy watch`
// shows.
func TestAFirstRunThatIsRefusedLeavesItsError(t *testing.T) {
	dir := t.TempDir()
	wrong := errors.New("no such data")
	_, err := fit.Run(t.Context(), dense(strategytest.New(t, 1, 1), 2), fit.Batches(batches(3)), fit.Options{},
		fit.Watch(watchdog.Options{Dir: dir}),
		fit.Hook{Name: "wrong", Begin: func(context.Context, *fit.State) error { return wrong }})
	require.ErrorIs(t, err, wrong)
	board, err := watchdog.OpenRecordStore(t.Context(), dir)
	require.NoError(t, err)
	r, err := board.Get(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, watchdog.Ended, r.State)
	assert.Contains(t, r.Error, "no such data")
}
