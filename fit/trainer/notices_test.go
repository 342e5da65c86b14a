package trainer

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAProgramOnATPUEnds is about a machine whose notices are followed, because the program makes no
// CPU devices: its release came back to itself without an end.
func TestAProgramOnATPUEnds(t *testing.T) {
	for _, devices := range []int{0, 8} {
		ctx, stop := notified(t.Context())
		release := (&Flags{Devices: devices}).watch(ctx)
		release()
		assert.NoError(t, ctx.Err(), "%d devices", devices)
		stop()
	}
}
