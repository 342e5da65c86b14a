package heartbeat

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWatchReportsAtGrowingIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []time.Duration
		stop := Start(func(elapsed time.Duration) { reports = append(reports, elapsed) })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		stop()
		assert.Equal(t, []time.Duration{10 * time.Second, 30 * time.Second, 70 * time.Second, 150 * time.Second},
			reports)
		time.Sleep(time.Hour)
		assert.Len(t, reports, 4, "calls after stop")

		stop = Start(func(time.Duration) { t.Error("a report for short work") })
		time.Sleep(FirstReport - time.Nanosecond)
		stop()
		time.Sleep(time.Hour)
	})
}
