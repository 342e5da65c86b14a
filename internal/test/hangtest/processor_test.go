package hangtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestProcessorTimeIsThatOfWorkAndNotOfWaiting(t *testing.T) {
	const work = 50 * time.Millisecond
	busy := Processor(t, func() {
		for spent := time.Duration(0); spent < work; {
			spent += Processor(t, func() {
				for i := range 1_000_000 {
					_ = i
				}
			})
		}
	})
	assert.GreaterOrEqual(t, busy, work)
	assert.Less(t, Processor(t, func() { time.Sleep(10 * work) }), 5*work, "waiting")
}
