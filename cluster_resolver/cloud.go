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

// apiTimeout bounds one call to the API. The first one fetches a token too.
const apiTimeout = 20 * time.Second

// CloudAPI reads resources of the Cloud TPU API. Names are full resource names, such as
// "projects/p/locations/z/nodes/n". Errors are [*APIError]s, which say whether to try again.
// Package tpuapi, a module of its own in the directory below, implements CloudAPI.
type CloudAPI interface {
	Node(ctx context.Context, name string) (Node, error)
	QueuedResource(ctx context.Context, name string) (QueuedResource, error)
}

// Node describes a TPU node as the API reports it. State and Health are the API's words.
type Node struct {
	Name, AcceleratorType, Topology, State, Health, HealthDescription string
	// Endpoints lists the workers in order. A port of 0 means that the API gave none.
	Endpoints []NodeEndpoint
	// QueuedResource is the name of the request that made the node, or "".
	QueuedResource string
	// Maintenance is the status of the upcoming maintenance and the start of its window, or "".
	Maintenance string
	// Multislice is true if the node belongs to a group of slices.
	Multislice bool
}

// NodeEndpoint is the address of one worker of a node.
type NodeEndpoint struct {
	// IP is the internal address, and ExternalIP the external address or "".
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

// CloudTPU resolves the workers of a TPU by the TPU's name: TensorFlow's TPUClusterResolver. It
// works from a machine that is not part of the TPU too. TPU may be:
//
//   - a node's name, short or full ("projects/p/locations/z/nodes/n");
//   - addresses, "grpc://10.1.2.3:8470,grpc://10.1.2.4", for which no API is asked;
//   - "local", the cluster of this one process;
//   - "", for the variable KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, or else TPU_NAME.
//
// Instead of TPU, QueuedResource may name a queued resource. The workers of its nodes then make one
// job, slice by slice. All nodes must be READY and healthy.
type CloudTPU struct {
	TPU, QueuedResource string
	// Project and Zone complete a short name. If they are "", Metadata is asked.
	Project, Zone string
	// API reads the Cloud TPU API. It may be nil if TPU holds addresses.
	API CloudAPI
	// Metadata gives a project and a zone that are not set. Nil means that it is not asked.
	Metadata *MetadataClient
	// Getenv reads the environment; nil means an empty one.
	Getenv Getenv
	// CoordinatorName and CoordinatorAddress add a job of one task. Set both or neither.
	CoordinatorName, CoordinatorAddress string
	// AllowUnhealthy accepts nodes whose health is bad. Their state must be READY in any case.
	AllowUnhealthy bool
	// External uses external addresses, for a caller outside the network.
	External bool
	// PollInterval, if positive, waits for a resource that is not ready yet, asking this often
	// until ctx ends. Zero fails at once with a [*NotReadyError].
	PollInterval time.Duration
	// Retry says how failed calls are repeated. A Timeout of 0 stands for 20 s here.
	Retry Retry
	SliceOptions
}

// Name returns "cloud_tpu".
func (CloudTPU) Name() string { return cloudName }

// Resolve asks the API. The task is worker 0, because the caller drives the cluster from outside.
// The error matches [ErrNotDetected] if no TPU is named, or is a [*ParseError], [*APIError] or
// [*NotReadyError].
func (r CloudTPU) Resolve(ctx context.Context) (Cluster, error) {
	tpu, source := strings.TrimSpace(r.TPU), "TPU"
	if tpu == "" && r.QueuedResource == "" {
		for _, source = range []string{"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"} {
			if tpu = strings.TrimSpace(r.Getenv.get(source)); tpu != "" {
				break
			}
		}
	}
	if (r.CoordinatorName == "") != (r.CoordinatorAddress == "") {
		return Cluster{}, parseError("coordinator", r.CoordinatorName+r.CoordinatorAddress,
			"name and address must be given together", "set CoordinatorName and CoordinatorAddress, or neither")
	}
	c := Cluster{Source: cloudName, RPCLayer: r.layer(), Task: Task{r.job(), 0}}
	var addresses []string
	var err error
	switch {
	case tpu != "" && r.QueuedResource != "":
		return Cluster{}, parseError("TPU", tpu, "both a TPU and a queued resource are named", "name one")
	case r.QueuedResource != "":
		addresses, err = r.queued(ctx, &c)
	case tpu == "":
		return Cluster{}, notDetected(cloudName, "no TPU is named: set TPU, or one of the variables KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS and TPU_NAME", nil)
	case tpu == "local":
		return c, nil
	case strings.HasPrefix(tpu, DefaultRPCLayer+"://"):
		addresses, err = ParseAddresses(source, tpu, r.port())
	case r.API == nil && r.TPU == "":
		return Cluster{}, notDetected(cloudName, source+" names "+cut(tpu)+", but API is nil, so it cannot be looked up", nil)
	default:
		addresses, err = r.node(ctx, &c, tpu)
	}
	if err != nil {
		return Cluster{}, err
	}
	jobs := map[string][]string{r.job(): addresses}
	if r.CoordinatorName != "" {
		if r.CoordinatorName == r.job() {
			return Cluster{}, parseError("coordinator", r.CoordinatorName, "coordinator has the name of the TPU job", "give it another name")
		}
		jobs[r.CoordinatorName] = []string{r.CoordinatorAddress}
	}
	c.Spec, err = NewClusterSpec(jobs)
	c.NumAccelerators = devicesPerTask(c, len(addresses)/max(c.TPU.Multislice.NumSlices, 1))
	c.AcceleratorsInferred = c.NumAccelerators > 0
	return c, err
}

// fullName completes "n" to "projects/p/locations/z/kind/n".
func (r CloudTPU) fullName(ctx context.Context, kind, name string) (string, error) {
	if strings.Contains(name, "/") {
		p := strings.Split(name, "/")
		if len(p) != 6 || p[0] != "projects" || p[2] != "locations" || p[4] != kind || slices.Contains(p, "") {
			return "", parseError(kind, name, "not a resource name", `write "projects/p/locations/z/`+kind+`/n", or n alone`)
		}
		return name, nil
	}
	if !validKey(name) {
		return "", parseError(kind, name, "not a resource name", "write letters, digits, '-' and '_'; or addresses as grpc://host:port")
	}
	project, zone := r.Project, r.Zone
	for _, part := range []struct {
		to        *string
		what, key string
	}{{&project, "project", "project/project-id"}, {&zone, "zone", "instance/zone"}} {
		if *part.to != "" {
			continue
		}
		if r.Metadata == nil {
			return "", parseError(kind, name, part.what+" is not known", "set it, or Metadata where this runs on Google Cloud")
		}
		v, err := r.Metadata.Get(ctx, part.key)
		if errors.Is(err, ErrNotDetected) {
			return "", parseError(kind, name, part.what+" is not known and there is no metadata server here", "set it")
		}
		if err != nil {
			return "", err
		}
		v = strings.TrimSpace(v)
		*part.to = v[strings.LastIndexByte(v, '/')+1:]
	}
	return "projects/" + project + "/locations/" + zone + "/" + kind + "/" + name, nil
}

func (r CloudTPU) node(ctx context.Context, c *Cluster, name string) ([]string, error) {
	full, err := r.fullName(ctx, "nodes", name)
	if err != nil {
		return nil, err
	}
	n, err := r.readyNode(ctx, full)
	if err != nil {
		return nil, err
	}
	c.TPU = tpuOf(n)
	var addresses []string
	c.TPU.Hosts, addresses, err = r.workers(n)
	return addresses, err
}

func tpuOf(n Node) TPU {
	t := TPU{AcceleratorType: n.AcceleratorType, Topology: n.Topology, Name: n.Name}
	if p := strings.Split(n.Name, "/"); len(p) == 6 {
		t.Project, t.Zone, t.Name = p[1], p[3], p[5]
	}
	return t
}

// maxSlices bounds the nodes of a queued resource.
const maxSlices = 1 << 12

// workers are the hosts of a node, and their addresses with ports.
func (r CloudTPU) workers(n Node) (hosts, addresses []string, err error) {
	if len(n.Endpoints) > maxWorkers {
		return nil, nil, parseError(n.Name, "", "node has "+strconv.Itoa(len(n.Endpoints))+" network endpoints, more than "+strconv.Itoa(maxWorkers), "")
	}
	if len(n.Endpoints) == 0 {
		return nil, nil, parseError(n.Name, "", "node is READY but has no network endpoints", "ask again in a while")
	}
	for i, e := range n.Endpoints {
		host, port := e.IP, e.Port
		if r.External {
			host = e.ExternalIP
		}
		if !validHost(host) {
			return nil, nil, parseError(fmt.Sprintf("%s: worker %d", n.Name, i), host, "endpoint has no usable address",
				"if External is set, the node needs external addresses")
		}
		if port == 0 || r.Port != 0 {
			port = r.port()
		}
		if port < 1 || port > 65535 {
			return nil, nil, parseError(n.Name, fmt.Sprint(port), "endpoint has no valid port", "set Port")
		}
		hosts, addresses = append(hosts, host), append(addresses, joinPort(host, port))
	}
	return hosts, addresses, nil
}

func (r CloudTPU) queued(ctx context.Context, c *Cluster) ([]string, error) {
	full, err := r.fullName(ctx, "queuedResources", r.QueuedResource)
	if err != nil {
		return nil, err
	}
	var q QueuedResource
	err = r.await(ctx, "queuedResources.get", func(ctx context.Context) error {
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
		return nil, parseError(full, "", "queued resource names "+strconv.Itoa(len(q.Nodes))+" nodes, more than "+strconv.Itoa(maxSlices), "")
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
			nodes[i], err = r.readyNode(gctx, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	c.TPU = tpuOf(nodes[0])
	if len(nodes) > 1 {
		c.TPU.Multislice = Multislice{NumSlices: len(nodes)}
	}
	var all []string
	for i, n := range nodes {
		if n.AcceleratorType != nodes[0].AcceleratorType || len(n.Endpoints) != len(nodes[0].Endpoints) {
			return nil, parseError(full, n.AcceleratorType, fmt.Sprintf("slice %d differs from slice 0, %q with %d workers", i,
				nodes[0].AcceleratorType, len(nodes[0].Endpoints)), "all slices of a job must be alike")
		}
		hosts, addresses, err := r.workers(n)
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

func (r CloudTPU) readyNode(ctx context.Context, name string) (Node, error) {
	var n Node
	err := r.await(ctx, "nodes.get", func(ctx context.Context) error {
		var err error
		if n, err = r.API.Node(ctx, name); err != nil {
			return err
		}
		sick := n.Health != "" && n.Health != "HEALTHY" && n.Health != "HEALTH_UNSPECIFIED"
		if n.State != "READY" || (sick && !r.AllowUnhealthy) {
			final := slices.Contains([]string{"PREEMPTED", "TERMINATED", "DELETING", "STOPPING", "STOPPED"}, n.State)
			return &NotReadyError{Name: name, State: n.State, Health: n.Health, Detail: n.HealthDescription, Final: final}
		}
		return nil
	})
	return n, err
}

// await calls f with retries, and again while the resource is not ready and waiting is asked for.
func (r CloudTPU) await(ctx context.Context, op string, f func(context.Context) error) error {
	if r.API == nil {
		return &errkind.Fault{Op: "clusterresolver: " + cloudName, Reason: "API is nil", Hint: "set it to ask for a TPU by name, or give addresses as grpc://host:port",
			Class: errkind.ValueError}
	}
	again := func(err error) bool {
		var t interface{ Temporary() bool }
		return errors.As(err, &t) && t.Temporary()
	}
	retry := r.Retry
	if retry.Timeout == 0 {
		retry.Timeout = apiTimeout
	}
	retry = retry.withDefaults()
	for {
		err := retry.do(ctx, op, again, f)
		var nr *NotReadyError
		if r.PollInterval <= 0 || !errors.As(err, &nr) || nr.Final {
			return err
		}
		if e := retry.Sleep(ctx, r.PollInterval); e != nil {
			return &errkind.Fault{Op: "clusterresolver: " + cloudName, Reason: e.Error() + " while waiting", Err: err, Match: e}
		}
	}
}
