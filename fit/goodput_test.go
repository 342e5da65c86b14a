package fit_test

import (
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// TestGoodputIsThatOfAllLives ends a run after step 25, with a checkpoint of step 20, and resumes
// it. The record, the table and the watchdog include both lives.
func TestGoodputIsThatOfAllLives(t *testing.T) {
	dir := t.TempDir()
	life := func(stop int64) error {
		step := strategytest.OK(train.New(strategytest.New(t, 2, 1), strategytest.SeededStore(), optimizer.Adam().Done(),
			denseLoss(1), train.Options{}))
		defer step.Close()
		_, err := fit.Run(t.Context(), step, blocking(-1, nil), fit.Options{Steps: 40, Every: 5, Resume: true},
			fit.Watch(watchdog.Options{Dir: dir}), fit.Goodput(fit.GoodputOptions{Peak: 1e9}),
			fit.CSV(filepath.Join(dir, "run.csv")),
			fit.Checkpoint(filepath.Join(dir, "run"), 20),
			fit.Each(5, func(_ context.Context, s *fit.State) error {
				if s.Step() == stop {
					return errKilled
				}
				return nil
			}))
		return err
	}
	line := filepath.Join(dir, "goodput")
	t.Setenv("TPUSTRATEGY_GOODPUT", line)
	require.ErrorIs(t, life(25), errKilled)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "run", "step-0000000025"))) // as if it had been killed
	require.NoError(t, life(0))

	board, err := watchdog.OpenRecordStore(t.Context(), dir)
	require.NoError(t, err)
	r, err := board.Get(t.Context(), 0)
	require.NoError(t, err)
	require.NotNil(t, r.History)
	shares := r.History.Breakdown()
	assert.Equal(t, 2, shares.Attempts)
	assert.Equal(t, int64(40), r.History.LastStep)
	assert.Positive(t, shares.Steps)
	assert.Positive(t, shares.Repeated, "steps 21 to 25")
	assert.Positive(t, shares.Save)
	assert.Positive(t, shares.Compile)
	total := shares.Steps + shares.Repeated + shares.Start + shares.Compile + shares.Restore + shares.Save + shares.Input +
		shares.OtherHosts + shares.Hooks + shares.Down
	assert.InDelta(t, shares.WallTime, total, 0.01*shares.WallTime)

	said, err := os.ReadFile(line)
	require.NoError(t, err)
	assert.Regexp(t, `^goodput \d+\.\d % of .* in 2 attempts: .*\n$`, string(said))

	file, err := os.Open(filepath.Join(dir, "run.csv"))
	require.NoError(t, err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	for i, name := range rows[0] {
		if name == "goodput" || name == "mfu" {
			for _, row := range rows[1:] {
				x, err := strconv.ParseFloat(row[i], 64)
				require.NoError(t, err)
				assert.True(t, x > 0 && x < 1, "%s %v", name, x)
			}
		}
	}
	assert.Subset(t, rows[0], []string{"goodput", "mfu"})
}

func TestGoodputIsRefusedWithoutAWatch(t *testing.T) {
	step := strategytest.OK(train.New(strategytest.New(t, 2, 1), strategytest.SeededStore(), optimizer.Adam().Done(),
		denseLoss(1), train.Options{}))
	_, err := fit.Run(t.Context(), step, blocking(-1, nil), fit.Options{Steps: 1}, fit.Goodput())
	require.ErrorContains(t, err, "give fit.Watch")
	_, err = fit.Run(t.Context(), step, blocking(-1, nil), fit.Options{Steps: 1},
		fit.Goodput(fit.GoodputOptions{FLOPs: -1}))
	require.ErrorContains(t, err, "positive number")
}

var errKilled = errors.New("killed")
