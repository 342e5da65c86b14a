package clusterresolver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustSpec(t *testing.T, jobs map[string][]string) ClusterSpec {
	t.Helper()
	s, err := NewClusterSpec(jobs)
	require.NoError(t, err)
	return s
}

func TestClusterSpecAddress(t *testing.T) {
	s := mustSpec(t, map[string][]string{"worker": {"w0:1", "w1:1"}, "ps": {"p0:1"}})
	assert.Equal(t, []string{"ps", "worker"}, s.Jobs())
	assert.Equal(t, 2, s.NumTasks("worker"))
	assert.Equal(t, 0, s.NumTasks("chief"))
	assert.Equal(t, 3, s.Len())
	a, err := s.Address("worker", 1)
	require.NoError(t, err)
	assert.Equal(t, "w1:1", a)

	// TensorFlow's messages describe the job and index in the same way.
	_, err = s.Address("worker", 9)
	require.ErrorIs(t, err, ErrNoTask)
	assert.ErrorContains(t, err, `no task with index 9 in job "worker" (indices: [0, 1])`)
	_, err = s.Address("master", 0)
	assert.ErrorContains(t, err, `no such job in cluster: "master" (jobs: [ps, worker])`)
	_, err = s.Tasks("chief")
	assert.ErrorIs(t, err, ErrNoTask)
	_, err = s.Address("worker", -1)
	assert.ErrorContains(t, err, "no task with index -1")
}

func TestClusterSpecCopiesInput(t *testing.T) {
	in := map[string][]string{"worker": {"a:1"}}
	s := mustSpec(t, in)
	in["worker"][0] = "changed:1"
	tasks, err := s.Tasks("worker")
	require.NoError(t, err)
	tasks[0].Address = "changed:1"
	a, _ := s.Address("worker", 0)
	assert.Equal(t, "a:1", a)
}
