package clusterresolver

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClusterJSONIsStable(t *testing.T) {
	c, err := GKE{Getenv: env("TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "1", "TPU_ACCELERATOR_TYPE", "v9-1",
		"TPU_VISIBLE_CHIPS", "0", "MEGASCALE_COORDINATOR_ADDRESS", "c", "MEGASCALE_NUM_SLICES", "2", "MEGASCALE_SLICE_ID",
		"0")}.Resolve(t.Context())
	require.NoError(t, err)
	got, err := json.Marshal(c)
	require.NoError(t, err)
	assert.JSONEq(t,
		`{"source":"gke","cluster":{"worker":["a:8470","b:8470"]},"task":{"type":"worker","index":1},"rpc_layer":"grpc",
		"tpu":{"accelerator_type":"v9-1","hosts":["a","b"],"visible_chips":[0],"multislice":{"coordinator":"c","num_slices":2,"slice_id":0}},
		"findings":[{"code":"accelerator-unknown","severity":"warning","subject":"TPU_ACCELERATOR_TYPE","got":"v9-1",
			"want":"a known type such as \"v4-32\"","do":"check the spelling; worker counts are not verified"}]}`, string(got))
	again, err := json.Marshal(c.Clone())
	require.NoError(t, err)
	assert.Equal(t, string(got), string(again))

	empty, err := json.Marshal(Cluster{})
	require.NoError(t, err)
	assert.JSONEq(t, `{"source":"","cluster":{},"task":{"type":"","index":0}}`, string(empty))
}

func TestMasterAddsSchemeOnce(t *testing.T) {
	spec := mustSpec(t, map[string][]string{"trainer": {"grpc://a:1", "b:1"}})
	for layer, want := range map[string][2]string{"": {"grpc://a:1", "b:1"}, "grpc": {"grpc://a:1", "grpc://b:1"}} {
		for i := range 2 {
			c := Cluster{Spec: spec, RPCLayer: layer, Task: Task{"trainer", i}}
			m, err := c.Master()
			require.NoError(t, err)
			assert.Equal(t, want[i], m)
			assert.Equal(t, Task{"trainer", 0}, c.Leader())
			assert.Equal(t, i == 0, c.IsChief())
		}
	}
}

func TestUnknownTaskString(t *testing.T) {
	assert.Contains(t, Cluster{Source: "simple"}.String(), "task: (unknown task)")
	assert.Equal(t, "invalid", EventKind(99).String())
	assert.Equal(t, "watch-ended", EventWatchEnded.String())
}
