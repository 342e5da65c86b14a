package fit_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
)

// TestAHookIsToldWhatTheRunDoes is called for all activities of a run in their order,
// including the restore before Begin.
func TestAHookIsToldWhatTheRunDoes(t *testing.T) {
	dir := t.TempDir()
	var told []watchdog.Activity
	run := func(steps int64) {
		told = nil
		s := strategytest.New(t, 2, 1)
		_, err := fit.Run(t.Context(), dense(s, 2), fit.Batches(batches(int(steps))), fit.Options{Steps: steps, Every: 2,
			Resume: true},
			fit.Hook{Name: "listens", OnActivity: func(what watchdog.Activity, _ string) { told = append(told, what) }},
			fit.Checkpoint(dir, 2))
		require.NoError(t, err)
	}
	run(2)
	count := func(what watchdog.Activity) (n int) {
		for _, w := range told {
			if w == what {
				n++
			}
		}
		return n
	}
	assert.Equal(t, []int{2, 2, 1}, []int{count(watchdog.Input), count(watchdog.Launch), count(watchdog.Save)}, "%v", told)
	run(4)
	assert.Equal(t, 2, count(watchdog.Restore), "%v", told)
	assert.Equal(t, watchdog.Restore, told[0])
	assert.Equal(t, 2, count(watchdog.Launch), "of steps 3 and 4")
}
