package system_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSlicesAreAdjacentAlongX(t *testing.T) {
	b, err := os.ReadFile(goldenPath("2x v5litepod-16"))
	require.NoError(t, err)
	var g goldenTopology
	require.NoError(t, json.Unmarshal(b, &g))
	assert.Equal(t, []int{8, 4, 1, 1}, g.Mesh)
	assert.Equal(t, 2, g.Slices)
	assert.Len(t, g.Tasks, 8)
	for task, devices := range g.Tasks {
		for _, d := range devices {
			assert.Equal(t, task >= 4, d[1] >= 4, "task %d device %v", task, d)
		}
	}
}
