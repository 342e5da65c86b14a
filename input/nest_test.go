package input_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestNestsVisitKeysInOrder(t *testing.T) {
	n := input.Dict(map[string]input.Nest[int]{"b": input.Tuple(input.Leaf(1), input.Leaf(2)), "a": input.Leaf(3)})
	assert.Equal(t, []int{3, 1, 2}, n.Leaves())
	assert.Equal(t, []string{".a", ".b[0]", ".b[1]"}, n.Paths())
	assert.Equal(t, "{a: 3, b: (1, 2)}", n.String())
	_, ok := n.Get("c")
	assert.False(t, ok)
	assert.True(t, n.At(9).IsZero())
	doubled, err := input.MapNest(n, func(_ string, v int) (int, error) { return 2 * v, nil })
	require.NoError(t, err)
	assert.Equal(t, "{a: 6, b: (2, 4)}", doubled.String())
}
