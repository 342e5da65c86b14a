package clusterresolver

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGKEResolvesHostsAndProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		env    Getenv
		spec   string
		task   Task
		cores  int
		master string
	}{
		"one host": {
			env("TPU_WORKER_HOSTNAMES", "localhost", "TPU_ACCELERATOR_TYPE", "v5litepod-4"),
			`{"worker":["localhost:8470"]}`, Task{"worker", 0}, 4, "grpc://localhost:8470",
		},
		"four hosts": {
			env("TPU_WORKER_HOSTNAMES", "job-0.sub,job-1.sub,job-2.sub,job-3.sub", "TPU_WORKER_ID", "3",
				"TPU_ACCELERATOR_TYPE", "v4-32", "TPU_TOPOLOGY", "2x2x4", "TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1", "TPU_HOST_BOUNDS",
				"1,1,4"),
			`{"worker":["job-0.sub:8470","job-1.sub:8470","job-2.sub:8470","job-3.sub:8470"]}`, Task{"worker", 3}, 4,
			"grpc://job-3.sub:8470",
		},
		"a process for each chip": {
			env("TPU_WORKER_HOSTNAMES", "localhost", "TPU_ACCELERATOR_TYPE", "v4-8", "TPU_WORKER_ID", "0",
				"TPU_PROCESS_ADDRESSES", "localhost:8476,localhost:8477,localhost:8478,localhost:8479",
				"CLOUD_TPU_TASK_ID", "2", "TPU_PROCESS_BOUNDS", "2,2,1", "TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1",
				"TPU_VISIBLE_CHIPS", "2"),
			`{"worker":["localhost:8476","localhost:8477","localhost:8478","localhost:8479"]}`, Task{"worker", 2}, 1,
			"grpc://localhost:8478",
		},
		"Kaggle": {
			env("TPU_PROCESS_ADDRESSES", "local", "TPU_ACCELERATOR_TYPE", "v5litepod-8", "TPU_WORKER_ID", "0",
				"TPU_WORKER_HOSTNAMES", "localhost"),
			`{"worker":["localhost:8471"]}`, Task{"worker", 0}, 8, "grpc://localhost:8471",
		},
		"Kaggle without more": {env("TPU_PROCESS_ADDRESSES", "local"), `{"worker":["localhost:8471"]}`, Task{"worker", 0}, 0,
			"grpc://localhost:8471"},
		"unknown generation": {
			env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE", "v99-8"),
			`{"worker":["a:8470","b:8470"]}`, Task{"worker", 1}, 0, "grpc://b:8470",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := GKE{Getenv: c.env}.Resolve(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.spec, got.Spec.String())
			assert.Equal(t, c.task, got.Task)
			assert.Equal(t, c.cores, got.NumAccelerators)
			m, err := got.Master()
			require.NoError(t, err)
			assert.Equal(t, c.master, m)
		})
	}
}

func TestGKEResolvesMultislice(t *testing.T) {
	got, err := GKE{Getenv: env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1",
		"MEGASCALE_COORDINATOR_ADDRESS", "job-slice-0-0.job:8081", "MEGASCALE_NUM_SLICES", "3", "MEGASCALE_SLICE_ID",
		"2")}.Resolve(t.Context())
	require.NoError(t, err)
	m := got.TPU.Multislice
	assert.Equal(t, Multislice{Coordinator: "job-slice-0-0.job", Port: 8081, NumSlices: 3, SliceID: 2}, m)
	rank, size := m.GlobalRank(got.Task.ID, 2)
	assert.Equal(t, []int{5, 6}, []int{rank, size})
	rank, size = Multislice{}.GlobalRank(1, 2)
	assert.Equal(t, []int{1, 2}, []int{rank, size})
}

func TestGKERejectsInvalidInput(t *testing.T) {
	for name, c := range map[string]struct {
		env  Getenv
		want string
	}{
		"no worker id": {env("TPU_WORKER_HOSTNAMES", "a,b"), "TPU_WORKER_ID: not set, with 2 workers"},
		"worker id not a number": {env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "one"),
			"TPU_WORKER_ID: not an index"},
		"task id out of range": {env("TPU_PROCESS_ADDRESSES", "a:1,b:1", "CLOUD_TPU_TASK_ID", "2"),
			"CLOUD_TPU_TASK_ID is 2, expected 0 to 1"},
		"worker id for processes": {env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1", "TPU_PROCESS_ADDRESSES",
			"a:1,a:2,b:1,b:2"), "CLOUD_TPU_TASK_ID: not set, with 4 processes on 2 hosts"},
		"port in a host name": {env("TPU_WORKER_HOSTNAMES", "a:1,b:1"), "TPU_WORKER_HOSTNAMES: not a host name"},
		"bad bounds": {env("TPU_WORKER_HOSTNAMES", "a", "TPU_PROCESS_BOUNDS", "1,1"),
			"TPU_PROCESS_BOUNDS: not a grid of three or four sizes"},
		"bad chips": {env("TPU_WORKER_HOSTNAMES", "a", "TPU_VISIBLE_CHIPS", "0,0"),
			"TPU_VISIBLE_CHIPS: listed twice"},
		"bad flag": {env("TPU_WORKER_HOSTNAMES", "a", "TPU_SKIP_MDS_QUERY", "maybe"),
			"TPU_SKIP_MDS_QUERY: not a truth value"},
		"bad megascale": {env("TPU_WORKER_HOSTNAMES", "a", "MEGASCALE_NUM_SLICES", "0"),
			"MEGASCALE_NUM_SLICES: not a number of slices"},
		"missing worker": {env("TPU_WORKER_HOSTNAMES", "a,b,c", "TPU_WORKER_ID", "1", "TPU_HOST_BOUNDS", "1,1,4"),
			"3 processes, expected 4 for TPU_PROCESS_BOUNDS=1,1,4"},
		"task of one process": {env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1", "TPU_HOST_BOUNDS", "1,1,1",
			"CLOUD_TPU_TASK_ID", "1"), "CLOUD_TPU_TASK_ID is 1, expected 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := GKE{Getenv: c.env}.Resolve(t.Context())
			assert.ErrorContains(t, err, c.want)
			assert.False(t, errors.Is(err, ErrNotDetected))
		})
	}
	_, err := GKE{Getenv: env("TPU_WORKER_ID", "1")}.Resolve(t.Context())
	assert.ErrorIs(t, err, ErrNotDetected)
	_, err = GKE{}.Resolve(t.Context())
	assert.ErrorIs(t, err, ErrNotDetected)
}
