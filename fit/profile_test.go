package fit_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/profile"
	"github.com/tpustrategy/tpustrategy/internal/protoint"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
)

// field returns the values of a bytes field and of a numeric field.
func field(t *testing.T, m []byte, number int) (values [][]byte, numbers []uint64) {
	t.Helper()
	for f, err := range protoint.Fields(m) {
		require.NoError(t, err)
		if int(f.Number) == number {
			values, numbers = append(values, f.Bytes), append(numbers, f.Value)
		}
	}
	return values, numbers
}

// stepsOf returns the step numbers in the profiles of a folder, by the name of the run.
func stepsOf(t *testing.T, dir string) map[string][]int64 {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "plugins", "profile", "*", "*.xplane.pb"))
	require.NoError(t, err)
	all := map[string][]int64{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		name := filepath.Base(filepath.Dir(path))
		all[name] = []int64{}
		planes, _ := field(t, data, 1)
		lines, _ := field(t, planes[0], 3)
		events, _ := field(t, lines[0], 4)
		for _, event := range events {
			stats, _ := field(t, event, 4)
			_, number := field(t, stats[0], 4)
			all[name] = append(all[name], int64(number[0]))
		}
	}
	return all
}

func TestAProfileHasTheStepsAskedFor(t *testing.T) {
	dir := t.TempDir()
	trigger := new(profile.Trigger)
	s := strategytest.New(t, 2, 1)
	var log bytes.Buffer
	var records []int64
	seen := fit.Hook{Name: "seen", Record: func(_ context.Context, s *fit.State) error {
		records = append(records, s.Step())
		if s.Step() == 10 {
			trigger.Request(2)
		}
		return nil
	}}
	_, err := fit.Run(t.Context(), dense(s, 2), fit.Batches(batches(25)), fit.Options{Steps: 25, Every: 10,
		Logger: slog.New(slog.NewTextHandler(&log, nil))},
		seen, fit.Profile(profile.Options{Dir: dir, From: 4, To: 6, Trigger: trigger}))
	require.NoError(t, err)
	assert.Equal(t, map[string][]int64{"steps_4-6": {4, 5, 6}, "steps_11-20": {11, 12, 13, 14, 15, 16, 17, 18, 19, 20}},
		stepsOf(t, dir))
	assert.Equal(t, []int64{1, 3, 6, 10, 20, 25}, records)
	assert.Contains(t, log.String(), "the profile contains only the host")
}

func TestAProfileNeverEndsARun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	s := strategytest.New(t, 2, 1)
	var log bytes.Buffer
	opts := fit.Options{Steps: 5, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	_, err := fit.Run(t.Context(), dense(s, 2), fit.Batches(batches(5)), opts,
		fit.Profile(profile.Options{Dir: filepath.Join(file, "below"), From: 1, To: 3}))
	require.NoError(t, err)
	assert.Contains(t, log.String(), "the profile is lost")

	// A run that ends before the last requested step writes the recorded steps.
	_, err = fit.Run(t.Context(), dense(strategytest.New(t, 2, 1), 2), fit.Batches(batches(5)), opts,
		fit.Profile(profile.Options{Dir: dir, From: 3, To: 30}))
	require.NoError(t, err)
	assert.Equal(t, map[string][]int64{"steps_3-5": {3, 4, 5}}, stepsOf(t, dir))

	for _, o := range []profile.Options{{}, {Dir: dir}, {Dir: dir, To: 3}, {Dir: dir, From: 3, To: 2},
		{Dir: dir, From: -1}} {
		_, err := fit.Run(t.Context(), dense(s, 2), fit.Batches(batches(5)), opts, fit.Profile(o))
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v: %v", o, err)
	}
}
