package clusterresolver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAllowErrorsKeepsFindings(t *testing.T) {
	e := env("TPU_WORKER_HOSTNAMES", "a,b,c", "TPU_WORKER_ID", "1", "TPU_HOST_BOUNDS", "1,1,4")
	got, err := GKE{Getenv: e, SliceOptions: SliceOptions{AllowErrors: true, JobName: "tpu",
		Port: 99}}.Resolve(t.Context())
	require.NoError(t, err)
	require.Len(t, got.Findings, 1)
	assert.Equal(t, FindingWorkerCount, got.Findings[0].Code)
	assert.Equal(t, `{"tpu":["a:99","b:99","c:99"]}`, got.Spec.String())
}

// The tables contain environments that are consistent, although they differ from the values
// inferred from the accelerator type.
func TestDifferenceFromInferredValuesIsWarning(t *testing.T) {
	for name, c := range map[string]struct {
		env      Getenv
		spec     string
		task     int
		devices  int
		warnings []FindingCode
	}{
		"four numbers of tpu7x": {
			env("TPU_WORKER_HOSTNAMES", "a,b,c,d", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE", "tpu7x-32",
				"TPU_PROCESS_BOUNDS", "2,2,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS", "2,2,1,2"),
			`{"worker":["a:8470","b:8470","c:8470","d:8470"]}`, 1, 8, nil,
		},
		"a process grid of tpu7x whose fourth number counts devices": {
			env("TPU_WORKER_HOSTNAMES", "a,b,c,d", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE", "tpu7x-32",
				"TPU_PROCESS_BOUNDS", "2,2,1,2"),
			`{"worker":["a:8470","b:8470","c:8470","d:8470"]}`, 1, 8, nil,
		},
		"a process for each core of tpu7x": {
			env("TPU_WORKER_HOSTNAMES", "a", "TPU_ACCELERATOR_TYPE", "tpu7x-2", "TPU_PROCESS_ADDRESSES", "a:1,a:2",
				"CLOUD_TPU_TASK_ID", "1",
				"TPU_PROCESS_BOUNDS", "1,1,1,2", "TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1,1"),
			`{"worker":["a:1","a:2"]}`, 1, 1, nil,
		},
		"one chip of tpu7x": {
			env("TPU_WORKER_HOSTNAMES", "localhost", "TPU_ACCELERATOR_TYPE", "tpu7x-8", "TPU_VISIBLE_CHIPS", "2",
				"TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1", "TPU_PROCESS_BOUNDS", "1,1,1"),
			`{"worker":["localhost:8470"]}`, 0, 2, nil,
		},
		"one host of two": {
			env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE", "v4-16", "TPU_HOST_BOUNDS",
				"1,1,1"),
			`{"worker":["b:8470"]}`, 0, 4, []FindingCode{FindingWorkerCount},
		},
		"one host of two that calls itself so": {
			env("TPU_WORKER_HOSTNAMES", "localhost", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE", "v4-16", "TPU_HOST_BOUNDS",
				"1,1,1", "TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1"),
			`{"worker":["localhost:8470"]}`, 0, 4, []FindingCode{FindingWorkerCount, FindingWorkerID},
		},
		"one host of two by its address": {
			env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE", "v4-16", "TPU_PROCESS_BOUNDS",
				"1,1,1", "TPU_PROCESS_ADDRESSES", "localhost:8476"),
			`{"worker":["localhost:8476"]}`, 0, 4, nil,
		},
		"one chip of a host of a slice": {
			env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE", "v4-16", "TPU_PROCESS_BOUNDS",
				"1,1,1",
				"TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1", "TPU_VISIBLE_CHIPS", "3"),
			`{"worker":["b:8470"]}`, 0, 1, []FindingCode{FindingWorkerCount},
		},
		"one chip beside the bounds of the host": {
			env("TPU_WORKER_HOSTNAMES", "localhost", "TPU_ACCELERATOR_TYPE", "v5litepod-4", "TPU_HOST_BOUNDS", "1,1,1",
				"TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1", "TPU_VISIBLE_CHIPS", "0"),
			`{"worker":["localhost:8470"]}`, 0, 1, []FindingCode{FindingVisibleChips},
		},
		"two hosts of eight chips": {
			env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "0", "TPU_ACCELERATOR_TYPE", "v5litepod-16", "TPU_TOPOLOGY",
				"4x4"),
			`{"worker":["a:8470","b:8470"]}`, 0, 8, []FindingCode{FindingWorkerCount},
		},
		"eight chips on one host": {env("TPU_WORKER_HOSTNAMES", "a", "TPU_ACCELERATOR_TYPE", "v5litepod-8"),
			`{"worker":["a:8470"]}`, 0, 8, nil},
		"eight chips on two hosts": {env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE",
			"v5litepod-8"), `{"worker":["a:8470","b:8470"]}`, 1, 4, nil},
		"eight chips on eight hosts": {
			env("TPU_WORKER_HOSTNAMES", "a,b,c,d,e,f,g,h", "TPU_WORKER_ID", "7", "TPU_ACCELERATOR_TYPE", "v6e-8"),
			`{"worker":["a:8470","b:8470","c:8470","d:8470","e:8470","f:8470","g:8470","h:8470"]}`, 7, 1,
			[]FindingCode{FindingWorkerCount},
		},
		"v6e of one chip": {env("TPU_WORKER_HOSTNAMES", "a", "TPU_ACCELERATOR_TYPE", "v6e-1", "TPU_TOPOLOGY", "1x1",
			"TPU_CHIPS_PER_HOST_BOUNDS", "1,1,1"), `{"worker":["a:8470"]}`, 0, 1, nil},
		"v6e of four chips": {env("TPU_WORKER_HOSTNAMES", "a", "TPU_ACCELERATOR_TYPE", "v6e-4", "TPU_TOPOLOGY", "2x2",
			"TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1"), `{"worker":["a:8470"]}`, 0, 4, nil},
		"v6e of eight chips": {env("TPU_WORKER_HOSTNAMES", "a", "TPU_ACCELERATOR_TYPE", "v6e-8", "TPU_TOPOLOGY", "2x4",
			"TPU_CHIPS_PER_HOST_BOUNDS", "2,4,1"), `{"worker":["a:8470"]}`, 0, 8, nil},
		"a topology that is not the type's": {
			env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "0", "TPU_ACCELERATOR_TYPE", "v4-16", "TPU_TOPOLOGY", "2x2x1"),
			`{"worker":["a:8470","b:8470"]}`, 0, 4, []FindingCode{FindingTopology},
		},
		"more hosts than the type has": {
			env("TPU_WORKER_HOSTNAMES", "a,b,c", "TPU_WORKER_ID", "0", "TPU_ACCELERATOR_TYPE", "v4-16"),
			`{"worker":["a:8470","b:8470","c:8470"]}`, 0, 0, []FindingCode{FindingWorkerCount},
		},
		"a type of the future": {
			env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE", "tpu9x-16", "TPU_TOPOLOGY",
				"2x2x2"),
			`{"worker":["a:8470","b:8470"]}`, 1, 0, []FindingCode{FindingAcceleratorUnknown},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := GKE{Getenv: c.env}.Resolve(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.spec, got.Spec.String())
			assert.Equal(t, Task{"worker", c.task}, got.Task)
			assert.Equal(t, c.devices, got.NumAccelerators)
			assert.Equal(t, c.devices > 0, got.AcceleratorsInferred)
			var found []FindingCode
			for _, f := range got.Findings {
				assert.Equal(t, SeverityWarning, f.Severity)
				found = append(found, f.Code)
			}
			assert.Equal(t, c.warnings, found)
		})
	}
}

func TestOneHostOfSliceCanRunAlone(t *testing.T) {
	values := map[string]string{
		"instance/attributes/accelerator-type":         "v4-16",
		"instance/attributes/agent-worker-number":      "1",
		"instance/attributes/worker-network-endpoints": "u:u:10.0.0.1,u:u:10.0.0.2",
		"instance/attributes/tpu-env": "HOST_BOUNDS: '1,1,2'\nCHIPS_PER_HOST_BOUNDS: '2,2,1'\nTOPOLOGY: " +
			"'2x2x2'\nWORKER_ID: '1'\n",
	}
	for name, alone := range map[string]Getenv{
		"by the older name": env("TPU_HOST_BOUNDS", "1,1,1"),
		"by the newer name": env("TPU_PROCESS_BOUNDS", "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS", "2,2,1",
			"CLOUD_TPU_TASK_ID", "0"),
		"with a topology": env("TPU_PROCESS_BOUNDS", "1,1,1", "TPU_TOPOLOGY", "2x2x1"),
		"with a number of its own": env("TPU_PROCESS_BOUNDS", "1,1,1", "TPU_WORKER_HOSTNAMES", "10.0.0.2", "TPU_WORKER_ID",
			"0"),
	} {
		md := NewMetadataClient(MetadataOptions{Transport: serve(t, newMetadataServer(values))})
		got, err := TPUVM{Metadata: md, Getenv: alone}.Resolve(t.Context())
		require.NoError(t, err, name)
		assert.Equal(t, `{"worker":["10.0.0.2:8470"]}`, got.Spec.String(), name)
		assert.Equal(t, Task{"worker", 0}, got.Task, name)
		assert.Equal(t, 4, got.NumAccelerators, name)
		assert.NotEmpty(t, got.Findings, name)
	}
}

func TestLocalhostOfSliceRunsAlone(t *testing.T) {
	md := NewMetadataClient(MetadataOptions{Transport: serve(t, newMetadataServer(v4Values()))})
	got, err := TPUVM{Metadata: md, Getenv: env("TPU_WORKER_HOSTNAMES", "localhost", "TPU_ACCELERATOR_TYPE",
		"v4-8")}.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, `{"worker":["localhost:8470"]}`, got.Spec.String())
	assert.Equal(t, Task{"worker", 0}, got.Task)
	assert.Equal(t, 4, got.NumAccelerators)
}

func TestHostWithoutWorkerListUsesProcessBounds(t *testing.T) {
	for tpuEnv, want := range map[string]bool{"HOST_BOUNDS: '1,1,1'\n": true, "HOST_BOUNDS: '1,1,2'\n": false,
		"TPU_PROCESS_BOUNDS: '1,1,1,1'\n": true} {
		md := NewMetadataClient(MetadataOptions{Transport: serve(t, newMetadataServer(map[string]string{
			"instance/attributes/accelerator-type": "tpu9x-32", "instance/attributes/tpu-env": tpuEnv}))})
		got, err := TPUVM{Metadata: md}.Resolve(t.Context())
		if !want {
			assert.ErrorContains(t, err, "worker-network-endpoints: absent")
			continue
		}
		require.NoError(t, err, tpuEnv)
		assert.Equal(t, `{"worker":["localhost:8470"]}`, got.Spec.String())
	}
}
