package input_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestContext(t *testing.T) {
	c := input.Context{NumInputPipelines: 3, InputPipelineID: 1, NumReplicasInSync: 2}
	assert.Equal(t, "Context(input pipeline id 1, total: 3)", c.String())
	size, err := c.PerReplicaBatchSize(8)
	require.NoError(t, err)
	assert.Equal(t, 4, size)
	for _, bad := range []int{7, -2} {
		_, err = c.PerReplicaBatchSize(bad)
		require.ErrorIs(t, err, input.ErrIndivisible)
		assert.ErrorContains(t, err, fmt.Sprintf("input: the global batch size %d ", bad))
	}
	_, err = c.PerReplicaBatchSize(7)
	assert.ErrorContains(t, err, "the next size that is divisible is 8")
	_, err = input.Context{}.PerReplicaBatchSize(8)
	assert.Error(t, err)
}
