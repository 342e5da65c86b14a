package clusterresolver

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChainUsesFirstApplicableResolver(t *testing.T) {
	gke := []string{"TPU_WORKER_HOSTNAMES", "a,b", "TPU_WORKER_ID", "0"}
	tf := []string{"TF_CONFIG", `{"cluster":{"worker":["x:1"]},"task":{"type":"worker","index":0}}`}
	offCloud := func() *MetadataClient {
		return NewMetadataClient(MetadataOptions{Transport: redirect{closedPort(t), &http.Transport{}}})
	}
	onVM := func() *MetadataClient {
		return NewMetadataClient(MetadataOptions{Transport: serve(t, newMetadataServer(v4Values()))})
	}
	for name, c := range map[string]struct {
		env    []string
		md     *MetadataClient
		source string
		asked  []string
	}{
		"TF_CONFIG before all": {append(append([]string{}, tf...), gke...), onVM(), "tf_config", []string{"tf_config"}},
		"GKE before metadata":  {gke, onVM(), "gke", []string{"tf_config", "gke"}},
		"TPU VM": {[]string{"TPU_NAME", "grpc://1.1.1.1"}, onVM(), "tpu_vm", []string{"tf_config", "gke",
			"tpu_vm"}},
		"a TPU elsewhere": {[]string{"TPU_NAME", "grpc://1.1.1.1"}, offCloud(), "cloud_tpu", []string{"tf_config", "gke",
			"tpu_vm", "cloud_tpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, attempts, err := Default(DefaultOptions{Getenv: env(c.env...), Metadata: c.md}).ResolveAttempts(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.source, got.Source)
			var asked []string
			for _, a := range attempts {
				asked = append(asked, a.Resolver)
			}
			assert.Equal(t, c.asked, asked)
			assert.Equal(t, c.source+": matched", attempts[len(attempts)-1].String())
		})
	}

	_, err := Default(DefaultOptions{Metadata: offCloud()}).Resolve(t.Context())
	var ce *ChainError
	require.ErrorAs(t, err, &ce)
	assert.ErrorIs(t, err, ErrNotDetected)
	assert.Len(t, ce.Attempts, 4)
	assert.ErrorContains(t, err, "\n\ttf_config: not detected: TF_CONFIG is not set\n\tgke: not detected: ")
}

func TestChainStopsAtInvalidSource(t *testing.T) {
	after := Simple{}
	_, attempts, err := Chain{[]Resolver{TFConfig{Getenv: env("TF_CONFIG", "{")}, after}}.ResolveAttempts(t.Context())
	require.ErrorContains(t, err, "a resolver matched but failed")
	assert.Len(t, attempts, 1)
	assert.False(t, errors.Is(err, ErrNotDetected))
	var pe *ParseError
	assert.ErrorAs(t, err, &pe)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Chain{[]Resolver{TFConfig{}, after}}.Resolve(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

// A canceled context must not be reported as an absent TPU.
func TestCanceledChainIsNotErrNotDetected(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	md := NewMetadataClient(MetadataOptions{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		cancel()
		return nil, r.Context().Err()
	})})
	_, err := Chain{[]Resolver{TPUVM{Metadata: md}}}.Resolve(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	assert.False(t, errors.Is(err, ErrNotDetected))
}

func TestSimpleReturnsACopy(t *testing.T) {
	spec := mustSpec(t, map[string][]string{"worker": {"a:1", "b:1"}})
	r := Simple{Cluster{Spec: spec, Task: Task{"worker", 1}, RPCLayer: "grpc", TPU: TPU{Hosts: []string{"a", "b"}}}}
	got, err := r.Resolve(t.Context())
	require.NoError(t, err)
	got.TPU.Hosts[0] = "changed"
	assert.Equal(t, "a", r.Cluster.TPU.Hosts[0])
	assert.Equal(t, "simple", got.Source)
	m, err := got.Master()
	require.NoError(t, err)
	assert.Equal(t, "grpc://b:1", m)

	_, err = Simple{Cluster{Spec: spec, Task: Task{"worker", 2}}}.Resolve(t.Context())
	assert.ErrorIs(t, err, ErrNoTask)
}

func TestUnionMergesSpecsAndKeepsFirstTask(t *testing.T) {
	a := Simple{Cluster{Spec: mustSpec(t, map[string][]string{"worker": {"a:1"}}), Task: Task{"worker", 0}}}
	b := Simple{Cluster{Spec: mustSpec(t, map[string][]string{"worker": {"b:1"}, "ps": {"p:1"}}), Task: Task{"ps", 0}}}
	got, err := Union{[]Resolver{a, b}}.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, `{"ps":["p:1"],"worker":["a:1","b:1"]}`, got.Spec.String())
	assert.Equal(t, Task{"worker", 0}, got.Task)

	_, err = Union{}.Resolve(t.Context())
	assert.ErrorContains(t, err, "no resolvers")
	_, err = Union{[]Resolver{a, TFConfig{}}}.Resolve(t.Context())
	assert.ErrorContains(t, err, "union: tf_config")
}

func TestMergeSpecs(t *testing.T) {
	sparse := func(m map[string]map[int]string) ClusterSpec {
		s, err := NewSparseClusterSpec(m)
		require.NoError(t, err)
		return s
	}
	a := mustSpec(t, map[string][]string{"worker": {"a:1", "b:1"}})
	b := mustSpec(t, map[string][]string{"worker": {"c:1"}, "ps": {"p:1"}})
	got, err := MergeSpecs(a, b)
	require.NoError(t, err)
	assert.Equal(t, `{"ps":["p:1"],"worker":["a:1","b:1","c:1"]}`, got.String())

	got, err = MergeSpecs(a, sparse(map[string]map[int]string{"worker": {5: "f:1"}}))
	require.NoError(t, err)
	assert.Equal(t, `{"worker":{"0":"a:1","1":"b:1","5":"f:1"}}`, got.String())

	_, err = MergeSpecs(sparse(map[string]map[int]string{"worker": {1: "x:1"}}), a)
	assert.ErrorContains(t, err, "task 1 already has the address")
}
