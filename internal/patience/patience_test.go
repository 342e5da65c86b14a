package patience

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLongWorkIsSaidToGoOnAtGrowingIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []time.Duration
		stop := Watch(func(passed time.Duration) { said = append(said, passed) })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		stop()
		assert.Equal(t, []time.Duration{10 * time.Second, 30 * time.Second, 70 * time.Second, 150 * time.Second}, said)
		time.Sleep(time.Hour)
		assert.Len(t, said, 4, "calls after stop")

		stop = Watch(func(time.Duration) { t.Error("short work is spoken of") })
		time.Sleep(First - time.Nanosecond)
		stop()
		time.Sleep(time.Hour)
	})
}
