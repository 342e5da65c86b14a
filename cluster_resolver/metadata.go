package clusterresolver

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"cloud.google.com/go/compute/metadata"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Metadata holds what the metadata server of a machine says about its TPU slice. The zero value
// stands for "no metadata server".
type Metadata struct {
	// AcceleratorType is the attribute "accelerator-type", such as "v4-32".
	AcceleratorType string
	// WorkerID is the attribute "agent-worker-number", which the Cloud TPU API sets, or "worker-id",
	// which the machines of a managed instance group have, or WORKER_ID of "tpu-env". It is -1 if all
	// are absent.
	WorkerID int
	// Endpoints is the attribute "worker-network-endpoints", by worker id.
	Endpoints []Endpoint
	// TPUEnv is the attribute "tpu-env".
	TPUEnv TPUEnv
	// Zone is the machine's zone, such as "us-central2-b". Project is the project's id.
	Zone, Project string
	// Preempted is the key instance/preempted: the machine is being taken away.
	Preempted bool
}

// known reports whether a metadata server has spoken.
func (m Metadata) known() bool {
	return m.AcceleratorType != "" || len(m.Endpoints) > 0 || m.TPUEnv.Len() > 0
}

// MetadataOptions configures a [MetadataClient]. The zero value is the default.
type MetadataOptions struct {
	// Transport carries the requests. Nil stands for a transport of the client's own, without a
	// proxy. The requests name the server's fixed address; a transport may send them elsewhere.
	Transport http.RoundTripper
	// Retry says how failed requests are repeated.
	Retry Retry
	// Logger receives the failures that are repeated. Nil discards them.
	Logger *slog.Logger
}

// MetadataClient reads the metadata server of a Google Cloud machine. It is safe for concurrent
// use, and does nothing before its first call.
//
// Source: "About VM metadata", cloud.google.com/compute/docs/metadata/overview. The keys of TPU VMs
// are those that Google's own frameworks read.
type MetadataClient struct {
	client *metadata.Client
	retry  Retry
	log    *slog.Logger
}

// NewMetadataClient returns a client.
func NewMetadataClient(o MetadataOptions) *MetadataClient {
	c := &http.Client{Transport: newMetadataTransport(o.Transport), CheckRedirect: SameHost}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &MetadataClient{metadata.NewWithOptions(&metadata.Options{Client: c}), o.Retry, log}
}

// MetadataError reports a metadata key that could not be read.
type MetadataError struct {
	// Key is the path behind computeMetadata/v1/.
	Key string
	Err error
}

func (e *MetadataError) Error() string {
	return errkind.Text("clusterresolver: metadata "+e.Key, cut(e.Err.Error()), nil, "")
}

// Kind returns the cause's kind, or UnavailableError.
func (e *MetadataError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.UnavailableError) }

// Unwrap returns the cause.
func (e *MetadataError) Unwrap() error { return e.Err }

// Is reports whether the target is [ErrNotFound], for a key that the server does not have, or
// [ErrNotDetected], if there is no metadata server.
func (e *MetadataError) Is(target error) bool {
	switch target {
	case ErrNotFound:
		var nd metadata.NotDefinedError
		return errors.As(e.Err, &nd)
	case ErrNotDetected:
		return errors.Is(e.Err, errNoServer) || errors.Is(e.Err, errForeign)
	}
	return false
}

// Get reads one key, such as "instance/attributes/accelerator-type". It repeats a request that a
// second attempt may cure. Errors are [*MetadataError]s.
func (c *MetadataClient) Get(ctx context.Context, key string) (string, error) {
	value := ""
	err := c.retry.do(ctx, "get", c.again(key), func(ctx context.Context) error {
		var err error
		value, err = c.client.GetWithContext(ctx, key)
		return err
	})
	if err != nil {
		return "", &MetadataError{key, err}
	}
	return value, nil
}

func (c *MetadataClient) again(key string) func(error) bool {
	return func(err error) bool {
		ok := temporary(err)
		if ok {
			c.log.Warn("metadata server failed; trying again", "key", key, "error", err)
		}
		return ok
	}
}

func temporary(err error) bool {
	var status *statusError
	switch {
	case errors.Is(err, errNoServer), errors.Is(err, errForeign), errors.Is(err, ErrTooLarge), errors.Is(err, ErrRedirected):
		return false
	case errors.As(err, &status), errors.Is(err, errTransient), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.DeadlineExceeded):
		return true
	}
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// optional is Get, with "" for a key that is not there.
func (c *MetadataClient) optional(ctx context.Context, key string) (string, error) {
	v, err := c.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return strings.TrimSpace(v), err
}

// Read reads all fields of [Metadata]. The error matches [ErrNotDetected] if there is no metadata
// server; a malformed value is a [*ParseError]. For a machine without a TPU it returns a Metadata
// without accelerator type and endpoints.
func (c *MetadataClient) Read(ctx context.Context) (Metadata, error) {
	md := Metadata{WorkerID: -1}
	var err error
	text := func(key string) (value string) {
		if err == nil {
			value, err = c.optional(ctx, key)
		}
		return value
	}
	const attributes = "instance/attributes/"
	md.AcceleratorType = text(attributes + "accelerator-type")
	endpoints, worker, env := text(attributes+"worker-network-endpoints"), text(attributes+"agent-worker-number"), text(attributes+"tpu-env")
	workerName := "agent-worker-number"
	if worker == "" && endpoints != "" {
		worker, workerName = text(attributes+"worker-id"), "worker-id"
	}
	if err != nil {
		return Metadata{}, err
	}
	if md.AcceleratorType == "" && endpoints == "" && env == "" {
		return md, nil
	}
	if env != "" {
		if md.TPUEnv, err = ParseTPUEnv(env); err != nil {
			return Metadata{}, err
		}
	}
	md.AcceleratorType, err = parseName("accelerator-type", cmp.Or(md.AcceleratorType, md.TPUEnv.Get("ACCELERATOR_TYPE"), md.TPUEnv.Get("TPU_ACCELERATOR_TYPE")))
	if err != nil {
		return Metadata{}, err
	}
	if endpoints != "" {
		if md.Endpoints, err = ParseEndpoints(endpoints); err != nil {
			return Metadata{}, err
		}
	}
	if worker == "" {
		worker, workerName = cmp.Or(md.TPUEnv.Get("WORKER_ID"), md.TPUEnv.Get("TPU_WORKER_ID")), "WORKER_ID in tpu-env"
	}
	if worker != "" {
		if md.WorkerID, err = parseIndex(workerName, worker); err != nil {
			return Metadata{}, err
		}
	}
	// These only inform; a server that lacks them is no reason to stop.
	zone := text("instance/zone")
	md.Zone = zone[strings.LastIndexByte(zone, '/')+1:]
	md.Project = text("project/project-id")
	md.Preempted = text("instance/preempted") == "TRUE"
	if err != nil {
		return Metadata{}, err
	}
	return md, nil
}
