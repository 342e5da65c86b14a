package tpuapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
)

// server simulates the API as documented in "REST Resource: projects.locations.nodes" and
// "projects.locations.queuedResources" (cloud.google.com/tpu/docs/reference/rest/v2). It returns
// resources as JSON, or Google's error body.
type server struct {
	mu        sync.Mutex
	resources map[string]string
	// fault, if set, can respond instead of the server. n counts requests from 1.
	fault func(w http.ResponseWriter, r *http.Request, n int) bool
	n     int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.n++
	n := s.n
	s.mu.Unlock()
	if s.fault != nil && s.fault(w, r, n) {
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	body, ok := s.resources[strings.TrimPrefix(r.URL.Path, "/v2/")]
	if !ok {
		fail(w, 404, "NOT_FOUND", "Resource '"+r.URL.Path+"' was not found")
		return
	}
	fmt.Fprint(w, body)
}

func fail(w http.ResponseWriter, code int, status, message string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"status":%q}}`, code, message, status)
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func start(t *testing.T, s *server) *Client {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	c, err := New(t.Context(), option.WithEndpoint(h.URL), option.WithHTTPClient(h.Client()))
	require.NoError(t, err)
	return c
}

const node = `{
  "name": "projects/my-project/locations/us-central2-b/nodes/my-tpu",
  "acceleratorType": "v4-16",
  "state": "READY",
  "health": "HEALTHY",
  "runtimeVersion": "tpu-ubuntu2204-base",
  "networkConfig": {"network": "projects/my-project/global/networks/default", "enableExternalIps": true},
  "networkEndpoints": [
    {"ipAddress": "10.130.0.31", "port": 8470, "accessConfig": {"externalIp": "34.1.2.3"}},
    {"ipAddress": "10.130.0.32", "port": 8470, "accessConfig": {"externalIp": "34.1.2.4"}}
  ],
  "id": "5519062430413285551",
  "apiVersion": "V2",
  "acceleratorConfig": {"type": "V4", "topology": "2x2x2"},
  "upcomingMaintenance": {"maintenanceStatus": "PENDING", "windowStartTime": "2026-01-02T03:04:05Z"}
}`

func queued(state string) string {
	return `{
  "name": "projects/my-project/locations/us-central2-b/queuedResources/my-request",
  "tpu": {"nodeSpec": [{"parent": "projects/my-project/locations/us-central2-b",
    "multisliceParams": {"nodeCount": 2, "nodeIdPrefix": "slice"}, "node": {"acceleratorType": "v4-16"}}]},
  "state": ` + state + `}`
}

const (
	nodes  = "projects/my-project/locations/us-central2-b/nodes/"
	queues = "projects/my-project/locations/us-central2-b/queuedResources/"
)

func TestResolveNode(t *testing.T) {
	c := start(t, &server{resources: map[string]string{nodes + "my-tpu": node}})
	r := clusterresolver.CloudTPU{TPU: "my-tpu", Project: "my-project", Zone: "us-central2-b", API: c}
	got, err := r.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, `{"worker":["10.130.0.31:8470","10.130.0.32:8470"]}`, got.Spec.String())
	assert.Equal(t, "v4-16", got.TPU.AcceleratorType)
	assert.Equal(t, "2x2x2", got.TPU.Topology)
	assert.Equal(t, 4, got.NumAccelerators)

	r.External = true
	got, err = r.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, `{"worker":["34.1.2.3:8470","34.1.2.4:8470"]}`, got.Spec.String())

	n, err := c.Node(t.Context(), nodes+"my-tpu")
	require.NoError(t, err)
	assert.Equal(t, "PENDING 2026-01-02T03:04:05Z", n.Maintenance)
}

func TestResolveQueuedResource(t *testing.T) {
	second := strings.NewReplacer("10.130.0.3", "10.130.1.3", "my-tpu", "slice-1").Replace(node)
	s := &server{resources: map[string]string{
		queues + "my-request": queued(`{"state": "ACTIVE", "activeData": {}}`),
		nodes + "slice-0":     strings.ReplaceAll(node, "my-tpu", "slice-0"), nodes + "slice-1": second,
	}}
	r := clusterresolver.CloudTPU{QueuedResource: queues + "my-request", API: start(t, s)}
	got, err := r.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, `{"worker":["10.130.0.31:8470","10.130.0.32:8470","10.130.1.31:8470","10.130.1.32:8470"]}`,
		got.Spec.String())
	assert.Equal(t, 2, got.TPU.Multislice.NumSlices)
	assert.Equal(t, 4, got.NumAccelerators)

	s.resources[queues+
		"my-request"] = queued(`{"state": "FAILED", "failedData": {"error": {"code": 8, "message": "no capacity"}}}`)
	_, err = r.Resolve(t.Context())
	var nr *clusterresolver.NotReadyError
	require.ErrorAs(t, err, &nr)
	assert.True(t, nr.Final)
	assert.Equal(t, "no capacity", nr.Detail)
}

func TestQueuedResourceListsNodes(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"one node":       {`{"parent":"p","nodeId":"n"}`, []string{"p/nodes/n"}},
		"default prefix": {`{"parent":"p","multisliceParams":{"nodeCount":2}}`, []string{"p/nodes/q-0", "p/nodes/q-1"}},
		"null":           {`null`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c0 := start(t, &server{resources: map[string]string{queues + "q": `{"tpu":{"nodeSpec":[` + c.spec + `]}}`}})
			q, err := c0.QueuedResource(t.Context(), queues+"q")
			require.NoError(t, err)
			assert.Equal(t, c.want, q.Nodes)
		})
	}
	hostile := start(t,
		&server{resources: map[string]string{queues +
			"q": `{"tpu":{"nodeSpec":[{"multisliceParams":{"nodeCount":2000000000}}]}}`}})
	_, err := hostile.QueuedResource(t.Context(), queues+"q")
	assert.ErrorContains(t, err, "the response contains 2000000000 nodes")
}

func TestFaults(t *testing.T) {
	upTo := func(n int, f func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, int) bool {
		return func(w http.ResponseWriter, _ *http.Request, i int) bool {
			if i <= n {
				f(w)
			}
			return i <= n
		}
	}
	const ever = 1000
	for name, c := range map[string]struct {
		fault   func(http.ResponseWriter, *http.Request, int) bool
		ok      bool
		code    int
		is      error
		calls   int
		timeout time.Duration
	}{
		"500 then 200": {fault: upTo(2, func(w http.ResponseWriter) { fail(w, 500, "INTERNAL", "oops") }), ok: true,
			calls: 3},
		"503 for ever": {fault: upTo(ever, func(w http.ResponseWriter) { fail(w, 503, "UNAVAILABLE", "later") }), code: 503,
			calls: 5},
		"404": {fault: upTo(ever, func(w http.ResponseWriter) { fail(w, 404, "NOT_FOUND", "none") }), code: 404,
			is: clusterresolver.ErrNotFound, calls: 1},
		"403": {fault: upTo(ever, func(w http.ResponseWriter) { fail(w, 403, "PERMISSION_DENIED", "denied") }),
			code: 403, calls: 1},
		"garbage":     {fault: upTo(ever, func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") }), calls: 5},
		"wrong types": {fault: upTo(ever, func(w http.ResponseWriter) { fmt.Fprint(w, `{"state":7}`) }), calls: 5},
		"error not JSON": {fault: upTo(ever, func(w http.ResponseWriter) { w.WriteHeader(400); fmt.Fprint(w, "bad") }),
			code: 400, calls: 1},
		"slow": {fault: func(_ http.ResponseWriter, r *http.Request, _ int) bool { <-r.Context().Done(); return true },
			is: context.DeadlineExceeded, calls: 1, timeout: 100 * time.Millisecond},
		"null endpoint": {fault: upTo(ever, func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"state":"READY","networkEndpoints":[null]}`)
		}), calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{resources: map[string]string{nodes + "my-tpu": node}, fault: c.fault}
			r := clusterresolver.CloudTPU{TPU: nodes + "my-tpu", API: start(t, s), Retry: clusterresolver.Retry{
				Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}}
			ctx := t.Context()
			if c.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.timeout)
				defer cancel()
			}
			_, err := r.Resolve(ctx)
			assert.Equal(t, c.calls, s.count())
			if c.ok {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			if c.is != nil {
				assert.ErrorIs(t, err, c.is)
			}
			var ae *clusterresolver.APIError
			if c.code != 0 {
				require.ErrorAs(t, err, &ae)
				assert.Equal(t, c.code, ae.Code)
				assert.Contains(t, err.Error(), "nodes.get "+nodes+"my-tpu")
			}
		})
	}
}
