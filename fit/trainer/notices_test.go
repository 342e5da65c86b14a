package trainer

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAProgramOnATPUEnds tests a program that follows the notices of the machine, because it uses
// no CPU devices. An earlier version called its release function recursively without end.
func TestAProgramOnATPUEnds(t *testing.T) {
	for _, devices := range []int{0, 8} {
		ctx, stop := withNotices(t.Context())
		release := (&Flags{Devices: devices}).forwardNotices(ctx)
		release()
		assert.NoError(t, ctx.Err(), "%d devices", devices)
		stop()
	}
}
