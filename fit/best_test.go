package fit

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/report/events"
)

func TestEarlyStopWaitsAsLongAsItIsPatient(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		opts   BestOptions
		values []float64
		stops  int // number of values after which the run stops, 0 for never
	}{
		"lower is better":      {BestOptions{}, []float64{3, 2, 2.5, 1, 1.5, 1}, 6},
		"higher is better":     {BestOptions{Maximize: true}, []float64{1, 2, 1.5, 2, 9}, 4},
		"by a minimum":         {BestOptions{MinDelta: 0.5}, []float64{3, 2.6, 2.5, 1}, 3},
		"more than a minimum":  {BestOptions{MinDelta: 0.5}, []float64{3, 2.6, 2.4, 1}, 0},
		"NaN is no better":     {BestOptions{}, []float64{1, nan, nan}, 3},
		"NaN is not the best":  {BestOptions{}, []float64{nan, 1, 2, 0.5}, 0},
		"never a number":       {BestOptions{}, []float64{nan, nan}, 2},
		"infinity is improved": {BestOptions{}, []float64{math.Inf(1), 5, math.Inf(1), 4}, 0},
	} {
		h := EarlyStop(Loss, 2, c.opts)
		require.NoError(t, h.err)
		h.Begin = func(context.Context, *State) error { return nil }
		f, err := begin(t, h, 0, nil)
		require.NoError(t, err)
		stopped := 0
		for i, v := range c.values {
			require.NoError(t, f.at(int64(i+1), Metric{"other", 0}))
			// Save and load the state each time, as a resume does.
			saved, err := h.Save()
			require.NoError(t, err)
			f, err = begin(t, h, int64(i), saved)
			require.NoError(t, err)
			require.NoError(t, f.at(int64(i+1), loss(v)))
			if f.s.stopReason != "" && stopped == 0 {
				stopped = i + 1
			}
		}
		assert.Equal(t, c.stops, stopped, name)
	}
	for _, wrong := range []Hook{EarlyStop("", 1), EarlyStop(Loss, 0), EarlyStop(Loss, -1),
		EarlyStop(Loss, 1, BestOptions{MinDelta: -1}),
		KeepBest(t.TempDir(), ""), KeepBest(t.TempDir(), Loss, BestOptions{MinDelta: nan})} {
		require.Equal(t, errkind.ValueError, errkind.KindOf(wrong.err))
	}
}

func TestEventsGoOnInAFileOfTheirOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "events")
	f, err := begin(t, Events(dir), 0, nil)
	require.NoError(t, err)
	require.NoError(t, f.at(10, loss(0.5), Metric{"held/loss", 0.75}))
	require.NoError(t, f.at(20, loss(0.25)))
	require.NoError(t, f.end())
	_, err = begin(t, Events(dir), 0, nil)
	require.ErrorIs(t, err, events.ErrTaken)
	f, err = begin(t, Events(dir), 15, nil)
	require.NoError(t, err)
	require.NoError(t, f.at(20, loss(0.25)))
	require.NoError(t, f.end())

	all := eventsOf(t, dir, "train")
	require.Len(t, all, 7)
	assert.Equal(t, []events.Value{events.Scalar(Loss, 0.5), events.Scalar("held/loss", 0.75)}, all[2].Values,
		"nothing evaluates by that name")
	assert.Equal(t, int64(16), all[5].Step, "of the restart")
	assert.Equal(t, events.Start, all[5].Session)
	assert.Equal(t, int64(20), all[6].Step)
}

// eventsOf reads the event files of a folder.
func eventsOf(t *testing.T, dir, folder string) (all []events.Event) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, folder, "events.*"))
	require.NoError(t, err)
	for _, path := range paths {
		for e, err := range events.Read(context.Background(), path) {
			require.NoError(t, err)
			all = append(all, e)
		}
	}
	return all
}

// TensorBoard draws tags with the same name in different folders in one chart.
func TestEventsOfAnEvaluationHaveAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "events")
	h := Events(dir)
	f, err := begin(t, h, 0, nil)
	require.NoError(t, err)
	f.s.runner.hooks = append(f.s.runner.hooks, Hook{metricPrefix: "held"}, Hook{metricPrefix: "../out"},
		Hook{metricPrefix: "train"})
	require.NoError(t, f.at(10, loss(0.5), Metric{"held/loss", 0.75}, Metric{"../out/loss", 1}, Metric{"train/loss", 2}))
	saved, err := h.Save()
	require.NoError(t, err)
	assert.Empty(t, saved)
	require.NoError(t, f.end())
	train, held := eventsOf(t, dir, "train"), eventsOf(t, dir, "held")
	assert.Equal(t, []events.Value{events.Scalar(Loss, 0.5), events.Scalar("../out/loss", 1), events.Scalar("train/loss",
		2)}, train[2].Values)
	assert.Equal(t, []events.Value{events.Scalar(Loss, 0.75)}, held[2].Values)
	assert.Empty(t, eventsOf(t, dir, "."), "there are no settings")

	require.Equal(t, errkind.ValueError, errkind.KindOf(Events(dir, EventsOptions{HistogramEvery: -1}).err))
	require.NoError(t, h.Load([]byte(`["AAAA"]`)), "of a run that wrote one file")
}

func TestARunThatStoppedEarlyStaysSoUnlessThereIsMorePatience(t *testing.T) {
	h := EarlyStop(Loss, 2)
	f, err := begin(t, h, 0, nil)
	require.NoError(t, err)
	for step, value := range []float64{1, 2, 3} {
		require.NoError(t, f.at(int64(step+1), loss(value)))
	}
	require.Contains(t, f.s.stopReason, "since step 1")
	saved, err := h.Save()
	require.NoError(t, err)
	again, err := begin(t, EarlyStop(Loss, 2), 3, saved)
	require.NoError(t, err)
	assert.Equal(t, f.s.stopReason, again.s.stopReason)
	more, err := begin(t, EarlyStop(Loss, 3), 3, saved)
	require.NoError(t, err)
	assert.Empty(t, more.s.stopReason)
}
