package clusterresolver

import (
	"encoding/json"
	"errors"
	"fmt"
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
		"worker": {`{` + cluster + `,"task":{"type":"worker","index":1}}`, "grpc://w1:1", Task{"worker", 1}, false,
			Task{"chief", 0}},
		"string index": {`{` + cluster + `,"task":{"type":"worker","index":"1"}}`, "grpc://w1:1", Task{"worker", 1}, false,
			Task{"chief", 0}},
		"chief": {`{` + cluster + `,"task":{"type":"chief","index":0}}`, "grpc://c:1", Task{"chief", 0}, true,
			Task{"chief", 0}},
		"ps": {`{` + cluster + `,"task":{"type":"ps","index":0}}`, "grpc://p:1", Task{"ps", 0}, false,
			Task{"chief", 0}},
		"rpc layer": {`{` + cluster + `,"rpc_layer":"grpcs","task":{"type":"ps","index":0}}`, "grpcs://p:1",
			Task{"ps", 0}, false, Task{"chief", 0}},
		"master given": {`{` + cluster + `,"session_master":"grpc://x:1","task":{"type":"ps","index":0}}`, "grpc://x:1",
			Task{"ps", 0}, false, Task{"chief", 0}},
		"no chief": {`{"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":0}}`, "grpc://a:1",
			Task{"worker", 0}, true, Task{"worker", 0}},
		"only one task": {`{"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0}}`, "", Task{"worker", 0}, true,
			Task{"worker", 0}},
		"empty":        {`{}`, "", Task{}, true, Task{"worker", 0}},
		"no task":      {`{` + cluster + `}`, "", Task{}, false, Task{"chief", 0}},
		"foreign keys": {`{"job":{"x":1},"model_dir":"gs://b"}`, "", Task{}, true, Task{"worker", 0}},
		"null layer":   {`{"rpc_layer":null}`, "", Task{}, true, Task{"worker", 0}},
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
	// The evaluator need not be in the cluster.
	got, err := ParseTFConfig(`{` + cluster + `,"task":{"type":"evaluator","index":0}}`)
	require.NoError(t, err)
	assert.False(t, got.IsChief())
	_, err = got.Master()
	assert.ErrorIs(t, err, ErrNoTask)
}

func TestTFConfigErrorContainsLocation(t *testing.T) {
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
		`{"cluster":{},"cluster":{}}`:            "TF_CONFIG: duplicate key",
		`{"cluster":{"chief":["a:1","b:1"]}}`:    "TF_CONFIG.cluster.chief: at most one task",
		`{"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":1}}`:  "task is not in the cluster",
		`{"cluster":{"worker":["a:1"]},"task":{"type":"trainer","index":0}}`: "no such job in cluster",
		`{"cluster":{"worker":["a:1",""]},"task":{"type":"worker","index":0}}`: "TF_CONFIG.cluster.worker[1]: empty " +
			"address",
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

func TestTFConfigRejectsInvalidAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"b:1\r\nHost: x":     "not an address",
		"b\r\n:1":            "not an address",
		"b;reboot:1":         "not an address",
		"b:99999":            "not a port",
		"b:0":                "not a port",
		"b:-1":               "not a port",
		"b:":                 "not a port",
		"b:1:2":              "not an address",
		"b c:1":              "not an address",
		"$(id):1":            "not an address",
		"b\x1b[31m:1":        "not an address",
		"[::1:1":             "not an address",
		"https://b:1":        "not an address",
		"grpc://grpc://b:1":  "not an address",
		"b\u2028:1":          "not an address",
		" b:1":               "not an address",
		"/job:worker/task:0": "not an address",
	} {
		for form, entry := range map[string]string{`["a:1",%s]`: "worker[1]", `{"7":%s}`: "worker[7]"} {
			quoted, err := json.Marshal(address)
			require.NoError(t, err)
			_, err = ParseTFConfig(`{"cluster":{"worker":` + fmt.Sprintf(form, quoted) + `}}`)
			var pe *ParseError
			if assert.ErrorAs(t, err, &pe, "%q", address) {
				assert.Equal(t, "TF_CONFIG.cluster."+entry, pe.Source)
				assert.Equal(t, want, pe.Reason, "%q", address)
				assert.NotContains(t, err.Error(), "\x1b")
				assert.NotContains(t, err.Error(), "\n")
			}
		}
	}
	for text, source := range map[string]string{`{"rpc_layer":"grpc\r\n"}`: "TF_CONFIG.rpc_layer",
		`{"rpc_layer":"a;b"}`:                  "TF_CONFIG.rpc_layer",
		`{"session_master":"grpc://x:1\r\ny"}`: "TF_CONFIG.session_master",
		`{"session_master":"x;y"}`:             "TF_CONFIG.session_master"} {
		_, err := ParseTFConfig(text)
		var pe *ParseError
		if assert.ErrorAs(t, err, &pe, text) {
			assert.Equal(t, source, pe.Source)
		}
	}
	for _, address := range []string{"a:1", "a", "10.0.0.1:65535", "[::1]:1", "[fe80::1%eth0]:1", "::1", "[::1]",
		"worker-0.svc.cluster.local.:2222", "under_score:1", "grpc://a:1", "A.b-c:00080"} {
		c, err := ParseTFConfig(fmt.Sprintf(`{"cluster":{"worker":["first:1",%q]}}`, address))
		require.NoError(t, err, address)
		got, err := c.Spec.Address("worker", 1)
		require.NoError(t, err)
		assert.Equal(t, address, got, "it stays as it was written")
	}
}

func TestTFConfigUnsetIsNotDetected(t *testing.T) {
	for name, r := range map[string]TFConfig{"no getenv": {}, "unset": {Getenv: env()},
		"blank": {Getenv: env("TF_CONFIG", " \n")}} {
		_, err := r.Resolve(t.Context())
		assert.ErrorIs(t, err, ErrNotDetected, name)
	}
}

func TestTFConfigTaskCanBeOverridden(t *testing.T) {
	e := env("TF_CONFIG", `{"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":0}}`)
	got, err := TFConfig{Getenv: e, Task: Task{"worker", 1}, RPCLayer: "http"}.Resolve(t.Context())
	require.NoError(t, err)
	m, err := got.Master()
	require.NoError(t, err)
	assert.Equal(t, "http://b:1", m)
	_, err = TFConfig{Getenv: e, Task: Task{"worker", 2}}.Resolve(t.Context())
	assert.ErrorContains(t, err, "task is not in the cluster")
}

// All spellings of an address are equal, within a job and between jobs, in TF_CONFIG and in all
// other lists of hosts.
func TestTasksMustHaveDifferentAddresses(t *testing.T) {
	for text, want := range map[string]string{
		`{"worker":["n1:2222","n1:2222"]}`: "TF_CONFIG.cluster.worker[1]: worker[0] has the " +
			"same address",
		`{"worker":{"0":"n1:1","7":"n1:1"}}`:                            "worker[7]: worker[0] has the same address",
		`{"chief":["n1:1"],"worker":["n2:1","n1:1"]}`:                   "worker[1]: chief[0] has the same address",
		`{"ps":["n1:1"],"worker":["n1:1"]}`:                             "worker[0]: ps[0] has the same address",
		`{"evaluator":["n1:1"],"worker":["n1:1"]}`:                      "worker[0]: evaluator[0] has the same address",
		`{"worker":["Host-1:2222","host-1:2222"]}`:                      "has the same address",
		`{"worker":["n1","n1:8470"]}`:                                   "has the same address",
		`{"worker":["grpc://n1:1","n1:1"]}`:                             "has the same address",
		`{"worker":["n1:80","n1:0080"]}`:                                "has the same address",
		`{"worker":["n1.:1","n1:1"]}`:                                   "has the same address",
		`{"worker":["[::1]:1","[0:0::1]:1"]}`:                           "has the same address",
		`{"worker":["::1","[::1]:8470"]}`:                               "has the same address",
		`{"worker":["10.0.0.1:1","[::ffff:10.0.0.1]:1"]}`:               "has the same address",
		`{"worker":["n1:1","n1:2"],"ps":["n1:3"],"chief":["n1:4"]}`:     "",
		`{"worker":["n1:8470","n2:8470"],"evaluator":["n3"]}`:           "",
		`{"worker":["10.0.0.1:1","10.0.0.11:1"],"ps":["10.0.0.1:11"]}`:  "",
		`{"worker":["localhost:1","127.0.0.1:1"],"ps":["localhost:2"]}`: "",
	} {
		c, err := ParseTFConfig(`{"cluster":` + text + `}`)
		if want == "" {
			require.NoError(t, err, text)
			assert.Positive(t, c.Spec.Len())
			continue
		}
		var pe *ParseError
		require.ErrorAs(t, err, &pe, text)
		assert.ErrorContains(t, err, want, text)
	}
	for _, list := range []string{"n1,n1", "n1,N1", "n1,n1.", "::1,0::1"} {
		_, err := ParseHosts("TPU_WORKER_HOSTNAMES", list)
		assert.ErrorContains(t, err, "listed twice", list)
	}
	for _, list := range []string{"n1:1,N1:1", "n1,n1:5", "grpc://n1:1,n1:1"} {
		_, err := ParseAddresses("TPU_PROCESS_ADDRESSES", list, 5)
		assert.ErrorContains(t, err, "listed twice", list)
	}
	_, err := ParseEndpoints("a:b:Host,c:d:host")
	assert.ErrorContains(t, err, "two workers with one address")
	one, err := NewClusterSpec(map[string][]string{"worker": {"n1:1"}})
	require.NoError(t, err)
	two, err := NewClusterSpec(map[string][]string{"ps": {"N1:1"}})
	require.NoError(t, err)
	_, err = MergeSpecs(one, two)
	assert.ErrorContains(t, err, "has the same address")
}
