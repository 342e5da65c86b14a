package tpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeviceAssignmentRejectsInvalidIndices(t *testing.T) {
	a, err := BuildDeviceAssignment(logical(t, 2, 1, 1, 2), AssignmentOptions{Replicas: 2})
	require.NoError(t, err)
	_, err = a.DeviceID(2, 0)
	assert.ErrorContains(t, err, "no replica 2")
	_, err = a.Task(0, 1)
	assert.ErrorContains(t, err, "no logical core 1")
	_, err = a.LookupReplicas(0, -1)
	assert.Error(t, err)
	_, _, ok := a.LookupDevice(99)
	assert.False(t, ok)
	_, err = NewDeviceAssignment(a.Topology(), [][]Coordinates{{{}}, {}})
	assert.ErrorContains(t, err, "same number")
	twice, err := NewDeviceAssignment(a.Topology(), [][]Coordinates{{{}}, {{}}})
	require.NoError(t, err)
	assert.ErrorContains(t, twice.Validate(), "the core at (0,0,0,0)")
}
