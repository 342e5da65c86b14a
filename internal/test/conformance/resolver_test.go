package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
)

// recordedAPI is a TPU API that returns the nodes of a case.
type recordedAPI struct {
	nodes map[string]clusterresolver.Node
	calls int
}

func (a *recordedAPI) Node(_ context.Context, name string) (clusterresolver.Node, error) {
	a.calls++
	n, ok := a.nodes[name]
	if !ok {
		return n, &clusterresolver.APIError{Op: "nodes.get", Name: name, Code: 404, Message: "not found"}
	}
	return n, nil
}

func (a *recordedAPI) QueuedResource(_ context.Context, name string) (clusterresolver.QueuedResource, error) {
	a.calls++
	return clusterresolver.QueuedResource{}, &clusterresolver.APIError{Op: "queuedResources.get", Name: name, Code: 404,
		Message: "not found"}
}

func nodeOf(name string, x map[string]any) clusterresolver.Node {
	text := func(m map[string]any, k string) string { s, _ := m[k].(string); return s }
	number := func(m map[string]any, k string) int {
		n, _ := strconv.Atoi(strings.Trim(strings.TrimSpace(jsonText(m[k])), `"`))
		return n
	}
	n := clusterresolver.Node{Name: name, AcceleratorType: "v2-8", State: text(x, "state"), Health: text(x, "health")}
	if t := text(x, "acceleratorType"); t != "" {
		n.AcceleratorType = t
	}
	if list, ok := x["networkEndpoints"].([]any); ok {
		for _, e := range list {
			m := e.(map[string]any)
			n.Endpoints = append(n.Endpoints, clusterresolver.NodeEndpoint{IP: text(m, "ipAddress"), Port: number(m, "port")})
		}
	} else if ip := text(x, "ipAddress"); ip != "" {
		n.Endpoints = []clusterresolver.NodeEndpoint{{IP: ip, Port: number(x, "port")}}
	}
	return n
}

func jsonText(x any) string {
	b, _ := json.Marshal(x)
	return string(b)
}

func resolverCase(c *caseRun, g golden) {
	env := map[string]string{}
	if m, ok := g.in("env").(map[string]any); ok {
		for k, x := range m {
			env[k] = x.(string)
		}
	}
	project, zone := "p", "z"
	api := &recordedAPI{nodes: map[string]clusterresolver.Node{}}
	if m, ok := g.in("nodes").(map[string]any); ok {
		for name, x := range m {
			api.nodes[name] = nodeOf(name, x.(map[string]any))
		}
		for name := range m { // short names are in this project and zone
			if parts := strings.Split(name, "/"); len(parts) == 6 {
				project, zone = parts[1], parts[3]
			}
		}
	}
	r := clusterresolver.CloudTPU{
		Project: project, Zone: zone, API: api, Getenv: func(k string) string { return env[k] },
		CoordinatorName: g.text("coordinator_name"), CoordinatorAddress: g.text("coordinator_address"),
		AllowUnhealthy: true, // TensorFlow checks only the state
	}
	if p := g.text("project"); p != "" {
		r.Project = p
	}
	if z := g.text("zone"); z != "" {
		r.Zone = z
	}
	r.JobName = g.text("job_name")
	r.TPU = g.text("tpu")
	if list, ok := g.in("tpu").([]any); ok {
		var names []string
		for _, x := range list {
			names = append(names, x.(string))
		}
		if kind, ok := errorOf(g.Outputs); ok && len(names) > 1 && kind == "NotImplementedError" {
			c.skip(reasonTPUs)
		}
		r.TPU = strings.Join(names, ",")
	}
	ctx := context.Background()
	switch {
	case strings.HasPrefix(g.Name, "num_accelerators"):
		r.TPU = "local"
		cl, err := r.Resolve(ctx)
		require.NoError(c, err)
		c.check(g.Outputs, map[string]any{"TPU": float64(cl.NumAccelerators)})
		return
	case strings.HasPrefix(g.Name, "master() of task"):
		masterCase(c, g)
		return
	case g.in("tpu") == nil && g.in("env") == nil && !strings.Contains(g.Name, "empty") && !strings.Contains(g.Name,
		"nothing") && !strings.Contains(g.Name, "no "):
		c.unmapped("resolver %q", g.Name)
	}
	cl, err := r.Resolve(ctx)
	if kind, ok := errorOf(g.Outputs); ok {
		require.Error(c, err, "TensorFlow: %s", kind)
		checkResolverError(c, kind, err)
		return
	}
	require.NoError(c, err)
	master, err := cl.Master()
	require.NoError(c, err)
	leader := cl.Leader()
	spec := map[string]any{}
	for _, job := range cl.Spec.Jobs() {
		tasks, err := cl.Spec.Tasks(job)
		require.NoError(c, err)
		var list []any
		for _, t := range tasks {
			list = append(list, t.Address)
		}
		spec[job] = list
	}
	job := cl.Task.Type
	if job == "" { // a cluster of one local process has no job name
		job = "worker"
		if leader.Type == "" {
			leader.Type, leader.ID = "worker", 0
		}
	}
	c.check(g.Outputs, map[string]any{
		"master": master, "get_master": master, "cluster_spec": spec, "task_type": job,
		"task_id": float64(max(cl.Task.ID, 0)), "job": job,
		"leader": "/job:" + leader.Type + "/task:" + strconv.Itoa(max(leader.ID, 0)), "environment": cl.Environment,
		"hardware_feature": nil, "api": api.calls > 0,
	})
}

// checkResolverError checks that err is the equivalent of TensorFlow's error.
func checkResolverError(c *caseRun, kind string, err error) {
	var parse *clusterresolver.ParseError
	var api *clusterresolver.APIError
	var notReady *clusterresolver.NotReadyError
	ok := false
	switch kind {
	case "RuntimeError":
		ok = errors.As(err, &notReady)
	case "ValueError", "TypeError", "KeyError", "AttributeError", "NotImplementedError":
		ok = errors.As(err, &parse) || errors.As(err, &api) || errors.Is(err, clusterresolver.ErrNoTask) ||
			errors.As(err, &notReady) || errors.Is(err, clusterresolver.ErrNotDetected)
	default:
		c.unmapped("error type %s", kind)
	}
	require.True(c, ok, "TensorFlow has a %s, ours is %T: %v", kind, err, err)
}

// masterCase checks the master addresses of the tasks of a pod with four workers.
func masterCase(c *caseRun, g golden) {
	spec, err := clusterresolver.NewClusterSpec(map[string][]string{"worker": {"10.2.3.4:8470", "10.2.3.5:8470",
		"10.2.3.6:8470", "10.2.3.7:8470"}})
	require.NoError(c, err)
	cl := clusterresolver.Cluster{Spec: spec, Task: clusterresolver.Task{Type: "worker", ID: 2},
		RPCLayer: clusterresolver.DefaultRPCLayer}
	ask := func(job string, index int) any {
		a, err := cl.MasterFor(clusterresolver.Task{Type: job, ID: index})
		if err != nil {
			require.ErrorIs(c, err, clusterresolver.ErrNoTask)
			return failure{kind: "ValueError", err: err}
		}
		return a
	}
	mine, err := cl.Master()
	require.NoError(c, err)
	c.check(g.Outputs, map[string]any{"task3": ask("worker", 3), "by_attr": mine, "unknown": ask("worker", 9),
		"unknown_job": ask("ps", 0)})
}
