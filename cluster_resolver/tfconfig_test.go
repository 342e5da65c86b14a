package clusterresolver

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTFConfigResolvesTaskAndMaster(t *testing.T) {
	const cluster = `"cluster":{"chief":["c:1"],"ps":["p:1"],"worker":["w0:1","w1:1"]}`
	for name, c := range map[string]struct {
		text, master string
		task         Task
		chief        bool
		leader       Task
	}{
		"worker":        {`{` + cluster + `,"task":{"type":"worker","index":1}}`, "grpc://w1:1", Task{"worker", 1}, false, Task{"chief", 0}},
		"string index":  {`{` + cluster + `,"task":{"type":"worker","index":"1"}}`, "grpc://w1:1", Task{"worker", 1}, false, Task{"chief", 0}},
		"chief":         {`{` + cluster + `,"task":{"type":"chief","index":0}}`, "grpc://c:1", Task{"chief", 0}, true, Task{"chief", 0}},
		"ps":            {`{` + cluster + `,"task":{"type":"ps","index":0}}`, "grpc://p:1", Task{"ps", 0}, false, Task{"chief", 0}},
		"rpc layer":     {`{` + cluster + `,"rpc_layer":"grpcs","task":{"type":"ps","index":0}}`, "grpcs://p:1", Task{"ps", 0}, false, Task{"chief", 0}},
		"master given":  {`{` + cluster + `,"session_master":"grpc://x:1","task":{"type":"ps","index":0}}`, "grpc://x:1", Task{"ps", 0}, false, Task{"chief", 0}},
		"no chief":      {`{"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":0}}`, "grpc://a:1", Task{"worker", 0}, true, Task{"worker", 0}},
		"only one task": {`{"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0}}`, "", Task{"worker", 0}, true, Task{"worker", 0}},
		"empty":         {`{}`, "", Task{}, true, Task{"worker", 0}},
		"no task":       {`{` + cluster + `}`, "", Task{}, false, Task{"chief", 0}},
		"foreign keys":  {`{"job":{"x":1},"model_dir":"gs://b"}`, "", Task{}, true, Task{"worker", 0}},
		"null layer":    {`{"rpc_layer":null}`, "", Task{}, true, Task{"worker", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := TFConfig{Getenv: env("TF_CONFIG", c.text)}.Resolve(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.task, got.Task)
			assert.Equal(t, c.chief, got.IsChief())
			assert.Equal(t, c.leader, got.Leader())
			m, err := got.Master()
			require.NoError(t, err)
			assert.Equal(t, c.master, m)
		})
	}
	// The evaluator stands outside of the cluster.
	got, err := ParseTFConfig(`{` + cluster + `,"task":{"type":"evaluator","index":0}}`)
	require.NoError(t, err)
	assert.False(t, got.IsChief())
	_, err = got.Master()
	var le *LookupError
	assert.ErrorAs(t, err, &le)
}

func TestTFConfigMalformedNamesThePlace(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                                      "TF_CONFIG: not a JSON object",
		`worker`:                                 "TF_CONFIG: not a JSON object",
		`[]`:                                     "TF_CONFIG: not a JSON object",
		`{} {}`:                                  "TF_CONFIG: not a JSON object",
		`{"cluster":[]}`:                         "TF_CONFIG.cluster: not a JSON object",
		`{"cluster":{},"task":7}`:                "TF_CONFIG.task: not a JSON object",
		`{"task":{"index":0}}`:                   "TF_CONFIG.task: index without a type",
		`{"task":{"type":"worker"}}`:             "TF_CONFIG.task: type without an index",
		`{"task":{"type":"worker","index":-1}}`:  "TF_CONFIG.task.index: not an index",
		`{"task":{"type":"worker","index":1.5}}`: "TF_CONFIG.task.index: not an index",
		`{"task":{"type":7,"index":0}}`:          "TF_CONFIG.task.type: not a string",
		`{"rpc_layer":1}`:                        "TF_CONFIG.rpc_layer: not a string",
		`{"cluster":{},"cluster":{}}`:            "TF_CONFIG: key given twice",
		`{"cluster":{"chief":["a:1","b:1"]}}`:    "TF_CONFIG.cluster.chief: at most one task",
		`{"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":1}}`:        "task is not in the cluster",
		`{"cluster":{"worker":["a:1"]},"task":{"type":"trainer","index":0}}`:       "no such job in cluster",
		`{"cluster":{"worker":["a:1",""]},"task":{"type":"worker","index":0}}`:     "TF_CONFIG.cluster.worker[1]: empty address",
		`{"cluster":{"worker":{"0":"a:1"}},"task":{"type":"worker","index":"0x"}}`: "TF_CONFIG.task.index",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := TFConfig{Getenv: env("TF_CONFIG", text)}.Resolve(t.Context())
			var pe *ParseError
			require.ErrorAs(t, err, &pe)
			assert.ErrorContains(t, err, want)
			assert.False(t, errors.Is(err, ErrNotDetected), "a malformed variable must not be passed over")
		})
	}
}

func TestTFConfigUnsetIsNotDetected(t *testing.T) {
	for name, r := range map[string]TFConfig{"no getenv": {}, "unset": {Getenv: env()}, "blank": {Getenv: env("TF_CONFIG", " \n")}} {
		_, err := r.Resolve(t.Context())
		assert.ErrorIs(t, err, ErrNotDetected, name)
	}
}

func TestTFConfigTaskCanBeReplaced(t *testing.T) {
	e := env("TF_CONFIG", `{"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":0}}`)
	got, err := TFConfig{Getenv: e, Task: Task{"worker", 1}, RPCLayer: "http"}.Resolve(t.Context())
	require.NoError(t, err)
	m, err := got.Master()
	require.NoError(t, err)
	assert.Equal(t, "http://b:1", m)
	_, err = TFConfig{Getenv: e, Task: Task{"worker", 2}}.Resolve(t.Context())
	assert.ErrorContains(t, err, "task is not in the cluster")
}
