package clusterresolver

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTPUVMResolvesFromMetadata(t *testing.T) {
	s := newMetadataServer(v4Values())
	md := NewMetadataClient(MetadataOptions{Transport: serve(t, s)})
	got, err := TPUVM{Metadata: md}.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, `{"worker":["10.0.0.1:8470","10.0.0.2:8470","10.0.0.3:8470","10.0.0.4:8470"]}`, got.Spec.String())
	assert.Equal(t, Task{"worker", 2}, got.Task)
	assert.Equal(t, 4, got.NumAccelerators)
	assert.Equal(t, TPU{
		AcceleratorType: "v4-32", Topology: "2x2x4", Name: "my-tpu", Zone: "us-central2-b", Project: "my-project",
		Hosts:         []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"},
		ProcessBounds: Bounds{1, 1, 4}, ChipsPerProcess: Bounds{2, 2, 1},
	}, got.TPU)
	assert.Empty(t, got.Findings)
	assert.Equal(t, 1, s.count("instance/attributes/tpu-env"))
}

func TestTPUVMEnvironmentTakesPrecedence(t *testing.T) {
	values := v4Values()
	values["instance/attributes/tpu-env"] += "MEGASCALE_COORDINATOR_ADDRESS: '10.9.0.1'\nMEGASCALE_NUM_SLICES: " +
		"'2'\nMEGASCALE_SLICE_ID: '1'\n"
	md := NewMetadataClient(MetadataOptions{Transport: serve(t, newMetadataServer(values))})
	got, err := TPUVM{Metadata: md}.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Multislice{Coordinator: "10.9.0.1", NumSlices: 2, SliceID: 1}, got.TPU.Multislice)

	_, err = TPUVM{Metadata: md, Getenv: env("MEGASCALE_COORDINATOR_ADDRESS", "10.8.0.1", "MEGASCALE_NUM_SLICES", "2",
		"MEGASCALE_SLICE_ID", "1")}.Resolve(t.Context())
	var ce *CheckError
	require.ErrorAs(t, err, &ce)
	assert.True(t, ce.Has(FindingMegascaleStale))
	assert.False(t, ce.Has(FindingWorkerCount))
	assert.ErrorContains(t, err, "MEGASCALE_COORDINATOR_ADDRESS is 10.8.0.1, expected 10.9.0.1")

	_, err = TPUVM{Metadata: md, Getenv: env("TPU_SKIP_MDS_QUERY", "1")}.Resolve(t.Context())
	assert.ErrorIs(t, err, ErrNotDetected)
}

func TestTPUVMWithOneHostNeedsNoEndpoints(t *testing.T) {
	md := NewMetadataClient(MetadataOptions{Transport: serve(t, newMetadataServer(map[string]string{
		"instance/attributes/accelerator-type": "v5litepod-4"}))})
	got, err := TPUVM{Metadata: md}.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, `{"worker":["localhost:8470"]}`, got.Spec.String())
	assert.Equal(t, Task{"worker", 0}, got.Task)

	md = NewMetadataClient(MetadataOptions{Transport: serve(t, newMetadataServer(map[string]string{
		"instance/attributes/accelerator-type": "v4-32"}))})
	_, err = TPUVM{Metadata: md}.Resolve(t.Context())
	assert.ErrorContains(t, err, "worker-network-endpoints: absent, but v4-32 has several workers")
}

// counting is a transport that counts the requests for each URL.
type counting struct {
	inner http.RoundTripper
	mu    sync.Mutex
	asked map[string]int
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.asked[r.URL.String()]++
	c.mu.Unlock()
	return c.inner.RoundTrip(r)
}

func TestTPUVMIsNotDetectedOnOtherHosts(t *testing.T) {
	refused := redirect{closedPort(t), &http.Transport{}}
	foreign := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("welcome")) }))
	plainVM := serve(t, newMetadataServer(map[string]string{"instance/zone": "projects/1/zones/z"}))
	for name, c := range map[string]struct {
		transport http.RoundTripper
		want      string
	}{
		"nothing listens":    {refused, "no metadata server"},
		"some other server":  {foreign, "not a metadata server"},
		"a VM without a TPU": {plainVM, "describes no TPU"},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &counting{inner: c.transport, asked: map[string]int{}}
			_, err := TPUVM{Metadata: NewMetadataClient(MetadataOptions{Transport: counted})}.Resolve(t.Context())
			assert.ErrorIs(t, err, ErrNotDetected)
			assert.ErrorContains(t, err, c.want)
			assert.NotEmpty(t, counted.asked)
			for url, times := range counted.asked {
				assert.Equal(t, 1, times, "a laptop must not wait for retries of %s", url)
			}
		})
	}
}
