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

// Metadata contains the values of a host's metadata server that describe its TPU slice. The zero
// value means that there is no metadata server.
type Metadata struct {
	// AcceleratorType is the attribute "accelerator-type", such as "v4-32".
	AcceleratorType string
	// WorkerID is the attribute "agent-worker-number" of the Cloud TPU API, the attribute
	// "worker-id" of managed instance groups, or WORKER_ID in "tpu-env". It is -1 if all are absent.
	WorkerID int
	// Endpoints is the attribute "worker-network-endpoints", by worker id.
	Endpoints []Endpoint
	// TPUEnv is the attribute "tpu-env".
	TPUEnv TPUEnv
	// Zone is the zone of the host, such as "us-central2-b". Project is the project id.
	Zone, Project string
	// Preempted is the key instance/preempted. If true, the host is being preempted.
	Preempted bool
}

// isPresent reports whether the metadata contains a TPU.
func (m Metadata) isPresent() bool {
	return m.AcceleratorType != "" || len(m.Endpoints) > 0 || m.TPUEnv.Len() > 0
}

// MetadataOptions configures a [MetadataClient].
type MetadataOptions struct {
	// Transport sends the requests. If nil, a new transport without a proxy is used. Requests use
	// the fixed address of the metadata server; a transport can send them to another address.
	Transport http.RoundTripper
	// Retry configures the repetition of failed requests.
	Retry Retry
	// Logger receives the failures that are retried. If nil, they are not logged.
	Logger *slog.Logger
}

// MetadataClient reads the metadata server of a Google Cloud host. It is safe for concurrent use.
// It does not send requests until a method is called.
//
// The metadata server is described in "About VM metadata",
// cloud.google.com/compute/docs/metadata/overview. The keys of TPU VMs are the keys that Google's
// frameworks read.
type MetadataClient struct {
	client *metadata.Client
	retry  Retry
	logger *slog.Logger
}

// NewMetadataClient returns a client with the given options.
func NewMetadataClient(o MetadataOptions) *MetadataClient {
	c := &http.Client{Transport: newMetadataTransport(o.Transport), CheckRedirect: CheckSameHost}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &MetadataClient{metadata.NewWithOptions(&metadata.Options{Client: c}), o.Retry, log}
}

// MetadataError reports a metadata key that could not be read.
type MetadataError struct {
	// Key is the path after computeMetadata/v1/.
	Key string
	Err error
}

// Error returns a message with the key and the cause.
func (e *MetadataError) Error() string {
	return errkind.Format("clusterresolver: metadata "+e.Key, truncate(e.Err.Error()), nil, "")
}

// Kind returns the kind of the cause, or UnavailableError.
func (e *MetadataError) Kind() errkind.Kind { return errkind.KindOr(e.Err, errkind.UnavailableError) }

// Unwrap returns the cause.
func (e *MetadataError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrNotFound] and the key does not exist, or target is
// [ErrNotDetected] and there is no metadata server.
func (e *MetadataError) Is(target error) bool {
	switch target {
	case ErrNotFound:
		var nd metadata.NotDefinedError
		return errors.As(e.Err, &nd)
	case ErrNotDetected:
		return errors.Is(e.Err, errNoServer) || errors.Is(e.Err, errNotMetadata)
	}
	return false
}

// Get returns the value of a key, such as "instance/attributes/accelerator-type". It retries
// temporary failures. Errors are [*MetadataError] values.
func (c *MetadataClient) Get(ctx context.Context, key string) (string, error) {
	value := ""
	err := c.retry.do(ctx, "get", c.retryable(key), func(ctx context.Context) error {
		var err error
		value, err = c.client.GetWithContext(ctx, key)
		return err
	})
	if err != nil {
		return "", &MetadataError{key, err}
	}
	return value, nil
}

func (c *MetadataClient) retryable(key string) func(error) bool {
	return func(err error) bool {
		ok := isTemporary(err)
		if ok {
			c.logger.Warn("metadata server failed; retrying", "key", key, "error", err)
		}
		return ok
	}
}

func isTemporary(err error) bool {
	var status *statusError
	switch {
	case errors.Is(err, errNoServer), errors.Is(err, errNotMetadata), errors.Is(err, ErrTooLarge), errors.Is(err,
		ErrRedirected):
		return false
	case errors.As(err, &status), errors.Is(err, errConnection), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.DeadlineExceeded):
		return true
	}
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// getOptional is like Get, but returns "" if the key does not exist.
func (c *MetadataClient) getOptional(ctx context.Context, key string) (string, error) {
	v, err := c.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return strings.TrimSpace(v), err
}

// Read reads all fields of [Metadata]. The error matches [ErrNotDetected] if there is no metadata
// server, and is a [*ParseError] for a malformed value. On a host without a TPU, the accelerator
// type and the endpoints of the result are empty.
func (c *MetadataClient) Read(ctx context.Context) (Metadata, error) {
	md := Metadata{WorkerID: -1}
	var err error
	text := func(key string) (value string) {
		if err == nil {
			value, err = c.getOptional(ctx, key)
		}
		return value
	}
	const attributes = "instance/attributes/"
	md.AcceleratorType = text(attributes + "accelerator-type")
	endpoints, worker, env := text(attributes+"worker-network-endpoints"), text(attributes+"agent-worker-number"),
		text(attributes+"tpu-env")
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
	md.AcceleratorType, err = parseName("accelerator-type", cmp.Or(md.AcceleratorType, md.TPUEnv.Get("ACCELERATOR_TYPE"),
		md.TPUEnv.Get("TPU_ACCELERATOR_TYPE")))
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
	// The following values are optional.
	zone := text("instance/zone")
	md.Zone = zone[strings.LastIndexByte(zone, '/')+1:]
	md.Project = text("project/project-id")
	md.Preempted = text("instance/preempted") == "TRUE"
	if err != nil {
		return Metadata{}, err
	}
	return md, nil
}
