package published

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// According to MaxText's README, a step of 32B on a v5e-256 runs 132 TFLOP/s per chip, which is
// 66.86 % of 197.
func TestStepsAreCountedAsTheirSourceCountsThem(t *testing.T) {
	for _, s := range Steps() {
		switch s.Row {
		case 2:
			const parameters = 32*(4*8192*8192+3*8192*28672+2*8192) + 2*32000*8192 + 8192
			assert.InDelta(t, 12.19, s.Seconds(parameters), 0.01)
		case 13:
			assert.NotEmpty(t, s.Lacks)
		}
		assert.NotEqual(t, s.Lacks == "", s.Differs == "", "row %d says what it lacks or what differs", s.Row)
		assert.NotEmpty(t, s.Source)
		if s.Lacks == "" {
			assert.Zero(t, s.Heads%s.Model, "row %d", s.Row)
			assert.Zero(t, s.Chips%s.Model, "row %d", s.Row)
		}
	}
}

func TestOperationsHaveABoundEach(t *testing.T) {
	rows := map[int]int{}
	names := map[string]bool{}
	for _, o := range Operations() {
		rows[o.Row]++
		assert.Positive(t, o.Seconds, o.Name)
		assert.Positive(t, o.Bound, o.Name)
		assert.False(t, names[o.Name+o.Slice], "%s on %s is there twice", o.Name, o.Slice)
		names[o.Name+o.Slice] = true
	}
	assert.Equal(t, map[int]int{34: 2, 35: 21, 36: 10, 37: 2}, rows)
}
