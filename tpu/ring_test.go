package tpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRingOrderVisitsNeighbors(t *testing.T) {
	for _, sizes := range [][3]int{{4, 4, 1}, {2, 6, 1}, {4, 1, 4}, {1, 2, 8}, {4, 4, 4}, {2, 4, 6}} {
		order := ringOrder(sizes)
		seen := map[[3]int]bool{}
		for i, c := range order {
			seen[c] = true
			next, distance := order[(i+1)%len(order)], 0
			for axis := range c {
				distance += max(c[axis]-next[axis], next[axis]-c[axis])
			}
			assert.Equal(t, 1, distance, "%v: %v to %v", sizes, c, next)
		}
		assert.Len(t, seen, sizes[0]*sizes[1]*sizes[2])
	}
}
