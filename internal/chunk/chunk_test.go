package chunk_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/chunk"
)

// TestRangesCoverABatch compares the ranges with the splits of TensorFlow.
func TestRangesCoverABatch(t *testing.T) {
	for rows, want := range map[int][][2]int{
		8: {{0, 2}, {2, 4}, {4, 6}, {6, 8}},
		5: {{0, 2}, {2, 4}, {4, 5}, {5, 5}},
		2: {{0, 1}, {1, 2}, {2, 2}, {2, 2}},
		0: {{0, 0}, {0, 0}, {0, 0}, {0, 0}},
	} {
		for i := range want {
			start, end := chunk.Range(rows, len(want), i)
			assert.Equal(t, want[i], [2]int{start, end}, "chunk %d of %d rows", i, rows)
		}
	}
}
