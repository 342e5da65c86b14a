package tpuapi

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	tpu "google.golang.org/api/tpu/v2"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
)

// Client reads the Cloud TPU API, version 2. It implements [clusterresolver.CloudAPI] and is safe
// for concurrent use. It does not retry failed calls; [clusterresolver.CloudTPU] does.
type Client struct{ service *tpu.Service }

var _ clusterresolver.CloudAPI = (*Client)(nil)

// New returns a client. Without options it uses Application Default Credentials, which it looks up
// before it returns; ctx limits this lookup. With any HTTP client, redirects to other hosts are not
// followed ([clusterresolver.ErrRedirected]) and the size of responses is limited
// ([clusterresolver.ErrTooLarge]).
func New(ctx context.Context, options ...option.ClientOption) (*Client, error) {
	s, err := newService(ctx, options)
	if err != nil {
		return nil, &errkind.Fault{Op: "tpuapi: new client", Err: err,
			Hint:  "pass credentials as an option, or set up Application Default Credentials",
			Class: errkind.KindOr(err, errkind.PermissionDeniedError)}
	}
	return &Client{s}, nil
}

// Node returns a node. Errors are [*clusterresolver.APIError] values.
func (c *Client) Node(ctx context.Context, name string) (clusterresolver.Node, error) {
	n, err := c.service.Projects.Locations.Nodes.Get(name).Context(ctx).Do()
	if err != nil {
		return clusterresolver.Node{}, apiError("nodes.get", name, err)
	}
	out := clusterresolver.Node{
		Name: cmp.Or(n.Name, name), AcceleratorType: n.AcceleratorType, State: n.State,
		Health: n.Health, HealthDescription: n.HealthDescription,
		QueuedResource: n.QueuedResource, Multislice: n.MultisliceNode,
	}
	if a := n.AcceleratorConfig; a != nil {
		out.Topology = a.Topology
	}
	if m := n.UpcomingMaintenance; m != nil {
		out.Maintenance = m.MaintenanceStatus + " " + m.WindowStartTime
	}
	if len(n.NetworkEndpoints) > maxEndpoints {
		return clusterresolver.Node{}, tooManyError("nodes.get", name, len(n.NetworkEndpoints), "network endpoints")
	}
	for _, e := range n.NetworkEndpoints {
		if e == nil { // JSON null in the list
			e = &tpu.NetworkEndpoint{}
		}
		w := clusterresolver.NodeEndpoint{IP: e.IpAddress, Port: int(e.Port)}
		if e.AccessConfig != nil {
			w.ExternalIP = e.AccessConfig.ExternalIp
		}
		out.Endpoints = append(out.Endpoints, w)
	}
	return out, nil
}

// maxSlices is the maximum number of nodes of a queued resource, and maxEndpoints the maximum
// number of workers of a node. They limit the memory that a malformed response can allocate.
const (
	maxSlices    = 1 << 12
	maxEndpoints = 1 << 16
)

// tooManyError returns an error for a response that contains too many entries.
func tooManyError(op, name string, n int, unit string) error {
	return &clusterresolver.APIError{Op: op, Name: name, Code: 200, Err: clusterresolver.ErrTooLarge,
		Message: "the response contains " + strconv.Itoa(n) + " " + unit}
}

// QueuedResource returns a queued resource. Errors are [*clusterresolver.APIError] values.
func (c *Client) QueuedResource(ctx context.Context, name string) (clusterresolver.QueuedResource, error) {
	q, err := c.service.Projects.Locations.QueuedResources.Get(name).Context(ctx).Do()
	if err != nil {
		return clusterresolver.QueuedResource{}, apiError("queuedResources.get", name, err)
	}
	out := clusterresolver.QueuedResource{Name: q.Name}
	if s := q.State; s != nil {
		out.State = s.State
		if s.FailedData != nil && s.FailedData.Error != nil {
			out.Detail = s.FailedData.Error.Message
		}
	}
	if q.Tpu == nil {
		return out, nil
	}
	for _, spec := range q.Tpu.NodeSpec {
		if spec == nil {
			continue
		}
		if len(out.Nodes) > maxSlices {
			return clusterresolver.QueuedResource{}, tooManyError("queuedResources.get", name, len(out.Nodes), "nodes")
		}
		if spec.NodeId != "" {
			out.Nodes = append(out.Nodes, spec.Parent+"/nodes/"+spec.NodeId)
		}
		m := spec.MultisliceParams
		if m == nil {
			continue
		}
		if m.NodeCount > maxSlices {
			return clusterresolver.QueuedResource{}, tooManyError("queuedResources.get", name, int(m.NodeCount), "nodes")
		}
		prefix := cmp.Or(m.NodeIdPrefix, name[strings.LastIndexByte(name, '/')+1:])
		for i := range m.NodeCount {
			out.Nodes = append(out.Nodes, spec.Parent+"/nodes/"+prefix+"-"+strconv.FormatInt(i, 10))
		}
	}
	return out, nil
}

func apiError(op, name string, err error) error {
	e := &clusterresolver.APIError{Op: op, Name: name, Err: err}
	var g *googleapi.Error
	if errors.As(err, &g) {
		e.Code, e.Message = g.Code, g.Message
	}
	return e
}
