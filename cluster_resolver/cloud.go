package clusterresolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
)

const cloudName = "cloud_tpu"

// apiTimeout is the timeout of one API call. The first call also fetches a token.
const apiTimeout = 20 * time.Second

// CloudAPI reads resources of the Cloud TPU API. Its arguments are full resource names, such as
// "projects/p/locations/z/nodes/n". Errors should be [*APIError] values, which specify whether to
// retry. Package tpuapi, a separate Go module, implements CloudAPI.
type CloudAPI interface {
	// Node returns a TPU node.
	Node(ctx context.Context, name string) (Node, error)
	// QueuedResource returns a queued resource.
	QueuedResource(ctx context.Context, name string) (QueuedResource, error)
}

// Node describes a TPU node. State and Health have the values of the Cloud TPU API.
type Node struct {
	Name, AcceleratorType, Topology, State, Health, HealthDescription string
	// Endpoints lists the workers in order. A port of 0 is unspecified.
	Endpoints []NodeEndpoint
	// QueuedResource is the name of the queued resource that created the node, or "".
	QueuedResource string
	// Maintenance is the status of upcoming maintenance and the start of its window, or "".
	Maintenance string
	// Multislice is true if the node is one of several slices.
	Multislice bool
}

// NodeEndpoint is the address of one worker of a node.
type NodeEndpoint struct {
	// IP is the internal address. ExternalIP is the external address, or "".
	IP, ExternalIP string
	Port           int
}

// QueuedResource describes a request for nodes.
type QueuedResource struct {
	Name, State string
	// Detail is the error of a failed request, or "".
	Detail string
	// Nodes lists the full names of the requested nodes, in order.
	Nodes []string
}

// CloudTPU resolves the workers of a TPU by name. It corresponds to TensorFlow's
// TPUClusterResolver, and also works on a host outside the TPU. TPU is one of:
//
//   - the short or full name of a node ("projects/p/locations/z/nodes/n");
//   - addresses such as "grpc://10.1.2.3:8470,grpc://10.1.2.4", which need no API;
//   - "local", a cluster with only this process;
//   - "", which means the variable KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS or TPU_NAME.
//
// Alternatively, QueuedResource is the name of a queued resource. The workers of all its nodes form
// one job, ordered by slice. All nodes must be READY and healthy.
type CloudTPU struct {
	TPU, QueuedResource string
	// Project and Zone complete a short name. If they are "", they are read from Metadata.
	Project, Zone string
	// API reads the Cloud TPU API. It can be nil if TPU contains addresses.
	API CloudAPI
	// Metadata provides the project and the zone if they are not set. It can be nil.
	Metadata *MetadataClient
	// Getenv reads the environment. If nil, the environment is empty.
	Getenv Getenv
	// CoordinatorName and CoordinatorAddress add a job with one task. Set both or neither.
	CoordinatorName, CoordinatorAddress string
	// AllowUnhealthy accepts unhealthy nodes. Their state must be READY nevertheless.
	AllowUnhealthy bool
	// External uses external addresses, for a process outside the network of the TPU.
	External bool
	// PollInterval is the interval at which Resolve checks a resource that is not ready, until ctx
	// is done. If 0, Resolve returns a [*NotReadyError] immediately.
	PollInterval time.Duration
	// Retry configures the repetition of failed calls. Its default Timeout is 20 seconds here.
	Retry Retry
	SliceOptions
}

// Name returns "cloud_tpu".
func (CloudTPU) Name() string { return cloudName }

// Resolve queries the Cloud TPU API. The task of the result is worker 0, because this process
// controls the cluster from outside. If no TPU is specified, the error matches [ErrNotDetected].
// Other errors are a [*ParseError], [*APIError] or [*NotReadyError].
func (r CloudTPU) Resolve(ctx context.Context) (Cluster, error) {
	tpu, source := strings.TrimSpace(r.TPU), "TPU"
	if tpu == "" && r.QueuedResource == "" {
		for _, source = range []string{"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"} {
			if tpu = strings.TrimSpace(r.Getenv.lookup(source)); tpu != "" {
				break
			}
		}
	}
	if (r.CoordinatorName == "") != (r.CoordinatorAddress == "") {
		return Cluster{}, parseError("coordinator", r.CoordinatorName+r.CoordinatorAddress,
			"only one of name and address is set", "set both CoordinatorName and CoordinatorAddress, or neither")
	}
	c := Cluster{Source: cloudName, RPCLayer: r.rpcLayer(), Task: Task{r.jobName(), 0}}
	var addresses []string
	var err error
	switch {
	case tpu != "" && r.QueuedResource != "":
		return Cluster{}, parseError("TPU", tpu, "TPU and QueuedResource are both set", "set only one of them")
	case r.QueuedResource != "":
		addresses, err = r.resolveQueuedResource(ctx, &c)
	case tpu == "":
		return Cluster{}, notDetected(cloudName,
			"no TPU is specified; set TPU, or one of the variables KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS and TPU_NAME", nil)
	case tpu == "local":
		return c, nil
	case strings.HasPrefix(tpu, DefaultRPCLayer+"://"):
		addresses, err = ParseAddresses(source, tpu, r.portOrDefault())
	case r.API == nil && r.TPU == "":
		return Cluster{}, notDetected(cloudName, source+" names "+truncate(tpu)+", but API is nil, so it cannot be looked up",
			nil)
	default:
		addresses, err = r.resolveNode(ctx, &c, tpu)
	}
	if err != nil {
		return Cluster{}, err
	}
	jobs := map[string][]string{r.jobName(): addresses}
	if r.CoordinatorName != "" {
		if r.CoordinatorName == r.jobName() {
			return Cluster{}, parseError("coordinator", r.CoordinatorName, "coordinator has the name of the TPU job",
				"use another name")
		}
		jobs[r.CoordinatorName] = []string{r.CoordinatorAddress}
	}
	c.Spec, err = NewClusterSpec(jobs)
	c.NumAccelerators = devicesPerTask(c, len(addresses)/max(c.TPU.Multislice.NumSlices, 1))
	c.AcceleratorsInferred = c.NumAccelerators > 0
	return c, err
}

// resourceName returns the full name of a resource of the given kind. For example, the full name of
// the node "n" is "projects/p/locations/z/nodes/n".
func (r CloudTPU) resourceName(ctx context.Context, kind, name string) (string, error) {
	if strings.Contains(name, "/") {
		p := strings.Split(name, "/")
		if len(p) != 6 || p[0] != "projects" || p[2] != "locations" || p[4] != kind || slices.Contains(p, "") {
			return "", parseError(kind, name, "not a resource name", `write "projects/p/locations/z/`+kind+`/n", or n alone`)
		}
		return name, nil
	}
	if !isValidKey(name) {
		return "", parseError(kind, name, "not a resource name",
			"write letters, digits, '-' and '_'; or addresses as grpc://host:port")
	}
	project, zone := r.Project, r.Zone
	for _, p := range []struct {
		to        *string
		what, key string
	}{{&project, "project", "project/project-id"}, {&zone, "zone", "instance/zone"}} {
		if *p.to != "" {
			continue
		}
		if r.Metadata == nil {
			return "", parseError(kind, name, p.what+" is not set", "set it, or set Metadata on a Google Cloud host")
		}
		v, err := r.Metadata.Get(ctx, p.key)
		if errors.Is(err, ErrNotDetected) {
			return "", parseError(kind, name, p.what+" is not set, and this host has no metadata server", "set it")
		}
		if err != nil {
			return "", err
		}
		v = strings.TrimSpace(v)
		*p.to = v[strings.LastIndexByte(v, '/')+1:]
	}
	return "projects/" + project + "/locations/" + zone + "/" + kind + "/" + name, nil
}

func (r CloudTPU) resolveNode(ctx context.Context, c *Cluster, name string) ([]string, error) {
	full, err := r.resourceName(ctx, "nodes", name)
	if err != nil {
		return nil, err
	}
	n, err := r.getReadyNode(ctx, full)
	if err != nil {
		return nil, err
	}
	c.TPU = newTPU(n)
	var addresses []string
	c.TPU.Hosts, addresses, err = r.nodeAddresses(n)
	return addresses, err
}

func newTPU(n Node) TPU {
	t := TPU{AcceleratorType: n.AcceleratorType, Topology: n.Topology, Name: n.Name}
	if p := strings.Split(n.Name, "/"); len(p) == 6 {
		t.Project, t.Zone, t.Name = p[1], p[3], p[5]
	}
	return t
}

// maxSlices is the maximum number of nodes of a queued resource.
const maxSlices = 1 << 12

// nodeAddresses returns the hosts of a node without ports, and the same hosts with ports.
func (r CloudTPU) nodeAddresses(n Node) (hosts, addresses []string, err error) {
	if len(n.Endpoints) > maxWorkers {
		return nil, nil, parseError(n.Name, "", "node has "+strconv.Itoa(len(n.Endpoints))+" network endpoints, more than "+
			strconv.Itoa(maxWorkers), "")
	}
	if len(n.Endpoints) == 0 {
		return nil, nil, parseError(n.Name, "", "node is READY but has no network endpoints", "try again later")
	}
	for i, e := range n.Endpoints {
		host, port := e.IP, e.Port
		if r.External {
			host = e.ExternalIP
		}
		if !isValidHost(host) {
			return nil, nil, parseError(fmt.Sprintf("%s: worker %d", n.Name, i), host, "endpoint has no usable address",
				"if External is set, the node needs external addresses")
		}
		if port == 0 || r.Port != 0 {
			port = r.portOrDefault()
		}
		if port < 1 || port > 65535 {
			return nil, nil, parseError(n.Name, fmt.Sprint(port), "endpoint has no valid port", "set Port")
		}
		hosts, addresses = append(hosts, host), append(addresses, joinPort(host, port))
	}
	return hosts, addresses, nil
}

func (r CloudTPU) resolveQueuedResource(ctx context.Context, c *Cluster) ([]string, error) {
	full, err := r.resourceName(ctx, "queuedResources", r.QueuedResource)
	if err != nil {
		return nil, err
	}
	var q QueuedResource
	err = r.callWithRetry(ctx, "queuedResources.get", func(ctx context.Context) error {
		q, err = r.API.QueuedResource(ctx, full)
		if err == nil && q.State != "ACTIVE" {
			final := slices.Contains([]string{"FAILED", "DELETING", "SUSPENDING", "SUSPENDED"}, q.State)
			return &NotReadyError{Name: full, State: q.State, Detail: q.Detail, Final: final}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(q.Nodes) > maxSlices {
		return nil, parseError(full, "", "queued resource names "+strconv.Itoa(len(q.Nodes))+" nodes, more than "+
			strconv.Itoa(maxSlices), "")
	}
	if len(q.Nodes) == 0 {
		return nil, parseError(full, "", "queued resource is ACTIVE but names no node", "")
	}
	nodes := make([]Node, len(q.Nodes))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, name := range q.Nodes {
		g.Go(func() error {
			var err error
			nodes[i], err = r.getReadyNode(gctx, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	c.TPU = newTPU(nodes[0])
	if len(nodes) > 1 {
		c.TPU.Multislice = Multislice{NumSlices: len(nodes)}
	}
	var all []string
	for i, n := range nodes {
		if n.AcceleratorType != nodes[0].AcceleratorType || len(n.Endpoints) != len(nodes[0].Endpoints) {
			return nil, parseError(full, n.AcceleratorType, fmt.Sprintf("slice %d differs from slice 0, %q with %d workers", i,
				nodes[0].AcceleratorType, len(nodes[0].Endpoints)), "all slices of a job must be equal")
		}
		hosts, addresses, err := r.nodeAddresses(n)
		if err == nil && len(all)+len(hosts) > maxTasks {
			err = parseError(full, "", "more than "+strconv.Itoa(maxTasks)+" workers in all slices", "")
		}
		if err != nil {
			return nil, err
		}
		c.TPU.Hosts = append(c.TPU.Hosts, hosts...)
		all = append(all, addresses...)
	}
	if c.TPU.Multislice.NumSlices > 1 {
		c.TPU.Multislice.Coordinator = c.TPU.Hosts[0]
	}
	return all, nil
}

func (r CloudTPU) getReadyNode(ctx context.Context, name string) (Node, error) {
	var n Node
	err := r.callWithRetry(ctx, "nodes.get", func(ctx context.Context) error {
		var err error
		if n, err = r.API.Node(ctx, name); err != nil {
			return err
		}
		unhealthy := n.Health != "" && n.Health != "HEALTHY" && n.Health != "HEALTH_UNSPECIFIED"
		if n.State != "READY" || (unhealthy && !r.AllowUnhealthy) {
			final := slices.Contains([]string{"PREEMPTED", "TERMINATED", "DELETING", "STOPPING", "STOPPED"}, n.State)
			return &NotReadyError{Name: name, State: n.State, Health: n.Health, Detail: n.HealthDescription, Final: final}
		}
		return nil
	})
	return n, err
}

// callWithRetry calls f and retries temporary failures. If the resource is not ready and
// PollInterval is set, it repeats the call until the resource is ready.
func (r CloudTPU) callWithRetry(ctx context.Context, op string, f func(context.Context) error) error {
	if r.API == nil {
		return &errkind.Fault{Op: "clusterresolver: " + cloudName, Reason: "API is nil", Class: errkind.ValueError,
			Hint: "set it to find a TPU by name, or use addresses such as grpc://host:port"}
	}
	retryable := func(err error) bool {
		var t interface{ Temporary() bool }
		return errors.As(err, &t) && t.Temporary()
	}
	retry := r.Retry
	if retry.Timeout == 0 {
		retry.Timeout = apiTimeout
	}
	retry = retry.withDefaults()
	for {
		err := retry.do(ctx, op, retryable, f)
		var nr *NotReadyError
		if r.PollInterval <= 0 || !errors.As(err, &nr) || nr.Final {
			return err
		}
		if e := retry.Sleep(ctx, r.PollInterval); e != nil {
			return &errkind.Fault{Op: "clusterresolver: " + cloudName, Reason: e.Error() + " while waiting", Err: err, Match: e}
		}
	}
}
