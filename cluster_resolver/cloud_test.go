package clusterresolver

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeAPI returns resources from tables and counts the calls. before can return an error for the
// nth call.
type fakeAPI struct {
	nodes  map[string]Node
	queued map[string]QueuedResource
	calls  atomic.Int32
	before func(n int) error
}

func (f *fakeAPI) Node(_ context.Context, name string) (Node, error) {
	if n := int(f.calls.Add(1)); f.before != nil {
		if err := f.before(n); err != nil {
			return Node{}, err
		}
	}
	n, ok := f.nodes[name]
	if !ok {
		return Node{}, &APIError{Op: "nodes.get", Name: name, Code: 404, Message: "not found"}
	}
	n.Name = name
	return n, nil
}

func (f *fakeAPI) QueuedResource(_ context.Context, name string) (QueuedResource, error) {
	f.calls.Add(1)
	q, ok := f.queued[name]
	if !ok {
		return QueuedResource{}, &APIError{Op: "queuedResources.get", Name: name, Code: 404}
	}
	return q, nil
}

func ready(accelerator string, ips ...string) Node {
	n := Node{State: "READY", Health: "HEALTHY", AcceleratorType: accelerator}
	for _, ip := range ips {
		n.Endpoints = append(n.Endpoints, NodeEndpoint{IP: ip, Port: 8470})
	}
	return n
}

// The expected addresses, masters and jobs are the results of TensorFlow's TPUClusterResolver for
// the same input.
func TestCloudTPUAcceptsAddressesLikeTensorFlow(t *testing.T) {
	for name, c := range map[string]struct {
		r            CloudTPU
		spec, master string
		task         Task
	}{
		"several addresses": {CloudTPU{TPU: "grpc://10.1.2.3:8470,grpc://10.1.2.4:8470"},
			`{"worker":["10.1.2.3:8470","10.1.2.4:8470"]}`, "grpc://10.1.2.3:8470", Task{"worker", 0}},
		"local": {CloudTPU{TPU: "local"}, `{}`, "", Task{"worker", 0}},
		"kubernetes variable": {CloudTPU{Getenv: env("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS",
			"grpc://10.120.27.5:8470,grpc://10.120.27.6:8470")},
			`{"worker":["10.120.27.5:8470","10.120.27.6:8470"]}`, "grpc://10.120.27.5:8470", Task{"worker", 0}},
		"TPU_NAME": {CloudTPU{Getenv: env("TPU_NAME", "grpc://10.9.9.9:8470")},
			`{"worker":["10.9.9.9:8470"]}`, "grpc://10.9.9.9:8470", Task{"worker", 0}},
		"kubernetes wins, port added": {CloudTPU{Getenv: env("TPU_NAME", "grpc://1.1.1.1", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS",
			"grpc://2.2.2.2")},
			`{"worker":["2.2.2.2:8470"]}`, "grpc://2.2.2.2:8470", Task{"worker", 0}},
		"job name and coordinator": {CloudTPU{TPU: "grpc://10.1.2.3:8470", SliceOptions: SliceOptions{JobName: "tpu_worker"},
			CoordinatorName: "coordinator", CoordinatorAddress: "10.0.0.1:1234"},
			`{"coordinator":["10.0.0.1:1234"],"tpu_worker":["10.1.2.3:8470"]}`, "grpc://10.1.2.3:8470", Task{"tpu_worker", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.r.Resolve(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.spec, got.Spec.String())
			assert.Equal(t, c.task, got.Task)
			m, err := got.Master()
			require.NoError(t, err)
			assert.Equal(t, c.master, m)
		})
	}
}

func TestCloudTPUMasterOfOtherTasks(t *testing.T) {
	api := &fakeAPI{nodes: map[string]Node{"projects/p/locations/z/nodes/pod": ready("v2-32", "10.2.3.4", "10.2.3.5",
		"10.2.3.6", "10.2.3.7")}}
	got, err := CloudTPU{TPU: "pod", Project: "p", Zone: "z", API: api}.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 8, got.NumAccelerators)
	assert.Equal(t, TPU{AcceleratorType: "v2-32", Name: "pod", Zone: "z", Project: "p",
		Hosts: []string{"10.2.3.4", "10.2.3.5", "10.2.3.6", "10.2.3.7"}}, got.TPU)
	m, err := got.MasterFor(Task{"worker", 3})
	require.NoError(t, err)
	assert.Equal(t, "grpc://10.2.3.7:8470", m)
	_, err = got.MasterFor(Task{"worker", 9})
	assert.ErrorContains(t, err, `no task with index 9 in job "worker"`)
	_, err = got.MasterFor(Task{"ps", 0})
	assert.ErrorContains(t, err, `no such job in cluster: "ps"`)
}

func TestCloudTPURejectsInvalidInput(t *testing.T) {
	const full = "projects/p/locations/z/nodes/"
	sick := ready("v2-8", "10.0.0.1")
	sick.Health, sick.HealthDescription = "UNHEALTHY_MAINTENANCE", "rescheduled"
	gone := ready("v2-8", "10.0.0.1")
	gone.State = "PREEMPTED"
	busy := ready("v2-8")
	busy.State = "CREATING"
	api := &fakeAPI{
		nodes: map[string]Node{full + "sick": sick, full + "gone": gone, full + "busy": busy,
			full + "bare": ready("v2-8"), full + "odd": ready("v2-8", "not an ip"), full + "a": ready("v2-8", "10.0.0.1"),
			full + "b": ready("v3-8", "10.0.0.2")},
		queued: map[string]QueuedResource{
			"projects/p/locations/z/queuedResources/failed": {State: "FAILED", Detail: "no capacity"},
			"projects/p/locations/z/queuedResources/none":   {State: "ACTIVE"},
			"projects/p/locations/z/queuedResources/mixed":  {State: "ACTIVE", Nodes: []string{full + "a", full + "b"}},
		},
	}
	for name, c := range map[string]struct {
		r    CloudTPU
		want string
		is   error
	}{
		"no name":           {CloudTPU{}, "no TPU is specified", ErrNotDetected},
		"name, no api, env": {CloudTPU{Getenv: env("TPU_NAME", "x")}, "TPU_NAME names x, but API is nil", ErrNotDetected},
		"name, no api":      {CloudTPU{TPU: "x", Project: "p", Zone: "z"}, "API is nil", nil},
		"no project":        {CloudTPU{TPU: "x", Zone: "z", API: api}, "project is not set", nil},
		"unknown": {CloudTPU{TPU: "x", Project: "p", Zone: "z", API: api}, "check the name, zone and project",
			ErrNotFound},
		"bad full name":  {CloudTPU{TPU: "projects/p/nodes/x", API: api}, "not a resource name", nil},
		"bad short name": {CloudTPU{TPU: "10.0.0.1:8470", API: api}, "not a resource name", nil},
		"bad address":    {CloudTPU{TPU: "grpc://a:b:c"}, "TPU: not an address", nil},
		"one coordinator": {CloudTPU{TPU: "grpc://a", CoordinatorAddress: "b:1"}, "only one of name and address is set",
			nil},
		"coordinator's name": {CloudTPU{TPU: "grpc://a", CoordinatorName: "worker", CoordinatorAddress: "b:1"},
			"coordinator has the name of the TPU job", nil},
		"unhealthy":    {CloudTPU{TPU: full + "sick", API: api}, "health UNHEALTHY_MAINTENANCE (rescheduled)", nil},
		"preempted":    {CloudTPU{TPU: full + "gone", API: api}, "it will not become ready", nil},
		"creating":     {CloudTPU{TPU: full + "busy", API: api}, "state CREATING", nil},
		"no endpoints": {CloudTPU{TPU: full + "bare", API: api}, "no network endpoints", nil},
		"odd endpoint": {CloudTPU{TPU: full + "odd", API: api}, "worker 0: endpoint has no usable address", nil},
		"no external":  {CloudTPU{TPU: full + "a", API: api, External: true}, "needs external addresses", nil},
		"failed request": {CloudTPU{QueuedResource: "failed", Project: "p", Zone: "z", API: api},
			"state FAILED (no capacity)", nil},
		"empty request": {CloudTPU{QueuedResource: "none", Project: "p", Zone: "z", API: api}, "names no node", nil},
		"unlike slices": {CloudTPU{QueuedResource: "mixed", Project: "p", Zone: "z", API: api},
			"slice 1 differs from slice 0", nil},
		"both": {CloudTPU{QueuedResource: "q", TPU: "x"}, "TPU and QueuedResource are both set", nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.r.Resolve(t.Context())
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				assert.ErrorIs(t, err, c.is)
			}
			assert.Equal(t, c.is == ErrNotDetected, errors.Is(err, ErrNotDetected))
		})
	}
	got, err := CloudTPU{TPU: full + "sick", API: api, AllowUnhealthy: true}.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, got.Spec.Len())
}

func TestCloudTPUCombinesSlicesOfQueuedResource(t *testing.T) {
	const full = "projects/p/locations/z/nodes/"
	api := &fakeAPI{
		nodes: map[string]Node{full + "s-0": ready("v5litepod-16", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"),
			full + "s-1": ready("v5litepod-16", "10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4")},
		queued: map[string]QueuedResource{"projects/p/locations/z/queuedResources/s": {State: "ACTIVE",
			Nodes: []string{full + "s-0", full + "s-1"}}},
	}
	got, err := CloudTPU{QueuedResource: "s", Project: "p", Zone: "z", API: api}.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 8, got.Spec.NumTasks("worker"))
	a, err := got.Spec.Address("worker", 4)
	require.NoError(t, err)
	assert.Equal(t, "10.0.1.1:8470", a)
	assert.Equal(t, Multislice{Coordinator: "10.0.0.1", NumSlices: 2}, got.TPU.Multislice)
	assert.Equal(t, 4, got.NumAccelerators)
}

func TestCloudTPUReadsProjectAndZoneFromMetadata(t *testing.T) {
	api := &fakeAPI{nodes: map[string]Node{"projects/my-project/locations/us-central2-b/nodes/n": ready("v2-8",
		"10.0.0.1")}}
	md := NewMetadataClient(MetadataOptions{Transport: serve(t, newMetadataServer(v4Values()))})
	_, err := CloudTPU{TPU: "n", API: api, Metadata: md}.Resolve(t.Context())
	require.NoError(t, err)
}

func TestCloudTPUWaitsAndRetries(t *testing.T) {
	const name = "projects/p/locations/z/nodes/n"
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{nodes: map[string]Node{name: ready("v2-8", "10.0.0.1")}}
		api.before = func(n int) error {
			switch {
			case n <= 2:
				return &APIError{Op: "nodes.get", Name: name, Code: 503}
			case n <= 5:
				return &NotReadyError{Name: name, State: "CREATING"}
			}
			return nil
		}
		start := time.Now()
		_, err := CloudTPU{TPU: name, API: api, PollInterval: time.Minute}.Resolve(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 6, api.calls.Load())
		assert.InDelta(t, 3*time.Minute, time.Since(start), float64(time.Second))

		api.before = func(int) error { return &APIError{Op: "nodes.get", Name: name, Code: 403, Message: "denied"} }
		api.calls.Store(0)
		_, err = CloudTPU{TPU: name, API: api, PollInterval: time.Minute}.Resolve(t.Context())
		require.ErrorContains(t, err, "the caller needs tpu.nodes.get")
		assert.EqualValues(t, 1, api.calls.Load(), "a refusal is not tried again")

		api.before = func(int) error { return &NotReadyError{Name: name, State: "CREATING"} }
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		_, err = CloudTPU{TPU: name, API: api, PollInterval: time.Minute}.Resolve(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var nr *NotReadyError
		require.ErrorAs(t, err, &nr)
	})
}
