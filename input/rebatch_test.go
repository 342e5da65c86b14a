package input_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestBatchSizesRotateByHost(t *testing.T) {
	for host, want := range [][]int{{2, 2, 2, 1}, {2, 1, 2, 2}} {
		got, err := input.BatchSizes(7, 4, 2, host)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	none, err := input.BatchSizes(0, 4, 2, 1)
	require.NoError(t, err)
	assert.Equal(t, []int{0, 0, 0, 0}, none)
	_, err = input.BatchSizes(7, 3, 2, 0)
	assert.ErrorContains(t, err, "3 replicas in sync cannot be divided by 2 processes")
	for _, bad := range [][4]int{{-1, 1, 1, 0}, {1, 0, 1, 0}, {1, 1, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, -1}} {
		_, err := input.BatchSizes(bad[0], bad[1], bad[2], bad[3])
		assert.Error(t, err, "%v", bad)
	}
}

func TestBatchSizesOfEveryStepAreTheGlobalBatch(t *testing.T) {
	for hosts := 1; hosts <= 4; hosts++ {
		for local := 1; local <= 4; local++ {
			for global := 1; global <= 20; global++ {
				n := hosts * local
				sums := make([]int, hosts) // by step within one round
				for host := range hosts {
					sizes, err := input.BatchSizes(global, n, hosts, host)
					require.NoError(t, err)
					for i, s := range sizes {
						sums[i/local] += s
						require.Contains(t, []int{global / n, (global + n - 1) / n}, s)
					}
				}
				for _, sum := range sums {
					require.Equal(t, global, sum)
				}
			}
		}
	}
}
