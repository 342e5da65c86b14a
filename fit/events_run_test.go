package fit_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/report/events"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The event files have separate folders for the training and the evaluations, and contain the
// distributions of the variables and the settings of the run.
func TestTheEventsOfARun(t *testing.T) {
	dir := t.TempDir()
	s := strategytest.New(t, 2, 2, strategytest.AnnotatedOptions())
	step := strategytest.AnnotatedStep(s)
	evaluation, err := train.NewEvaluation(s, step.Store(), strategytest.Annotated(2), train.Options{})
	require.NoError(t, err)
	_, err = fit.Run(t.Context(), step, fit.Batches(batches(-1)), fit.Options{Steps: 4, Every: 1,
		Settings: map[string]string{"rate": "0.5"}},
		fit.Evaluate("held", evaluation, fit.Batches(batches(2)), 2), fit.Events(dir, fit.EventsOptions{HistogramEvery: 2}))
	require.NoError(t, err)

	count := func(folder string) (tags map[string]int) {
		tags = map[string]int{}
		paths, err := filepath.Glob(filepath.Join(dir, folder, "events.*"))
		require.NoError(t, err)
		require.Len(t, paths, 1)
		for e, err := range events.Read(t.Context(), paths[0]) {
			require.NoError(t, err)
			for _, v := range e.Values {
				tags[v.Tag]++
				if v.Kind == events.IsHistogram {
					assert.Positive(t, v.Histogram.Number, v.Tag)
				}
			}
		}
		return tags
	}
	trained := count("train")
	assert.Equal(t, 4, trained[fit.Loss])
	delete(trained, fit.Loss)
	assert.NotEmpty(t, trained)
	for tag, n := range trained {
		assert.Equal(t, 2, n, tag)
	}
	assert.Equal(t, map[string]int{"loss": 2}, count("held"))
	assert.Equal(t, map[string]int{"_hparams_/session_start_info": 1, "_hparams_/session_end_info": 1}, count("."))
}
