package clusterresolver

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ErrNotDetected is matched by errors that only mean that a source is absent: a variable is not set,
// or there is no metadata server. After such an error, a [Chain] continues with its next resolver.
var ErrNotDetected = errkind.New(errkind.NotFoundError, "clusterresolver: not detected")

// ErrNotFound is matched by errors for a node, queued resource or metadata key that does not exist
// on a server.
var ErrNotFound = errkind.New(errkind.NotFoundError, "clusterresolver: not found")

// notDetected returns an error that matches ErrNotDetected.
func notDetected(resolver, reason string, cause error) error {
	return &errkind.Fault{Op: "clusterresolver: " + resolver + ": not detected", Match: ErrNotDetected,
		Reason: truncate(reason), Err: cause}
}

// ParseError reports malformed input. It never matches [ErrNotDetected], so a [Chain] stops instead
// of using another source.
type ParseError struct {
	// Source is the name of the input: a variable, a metadata key or a JSON path.
	Source string
	// Value is the malformed text, truncated to a readable length.
	Value string
	// Reason describes the problem. Hint is the correction and may be empty.
	Reason, Hint string
	// Err is the cause, or nil.
	Err error
}

// Error returns a message with the source, the problem, the value and the correction.
func (e *ParseError) Error() string {
	reason := e.Reason
	if e.Value != "" {
		reason += fmt.Sprintf(": got %q", e.Value)
	}
	return errkind.Format("clusterresolver: "+e.Source, reason, e.Err, e.Hint)
}

// Kind returns ValueError.
func (*ParseError) Kind() errkind.Kind { return errkind.ValueError }

// Unwrap returns the cause.
func (e *ParseError) Unwrap() error { return e.Err }

// maxQuoted is the maximum length in bytes of input text in an error.
const maxQuoted = 120

func parseError(source, value, reason, hint string) *ParseError {
	if len(value) > maxQuoted {
		value = strings.ToValidUTF8(value[:maxQuoted], "") + "..."
	}
	return &ParseError{Source: truncate(source), Value: value, Reason: reason, Hint: hint}
}

// ErrNoTask is matched by errors for a job or task that a [ClusterSpec] does not contain.
var ErrNoTask = errkind.New(errkind.ValueError, "clusterresolver")

// noJobError returns an error for a job that the cluster does not contain.
func noJobError(job string, jobs []string) error {
	return &errkind.Fault{Match: ErrNoTask, Reason: fmt.Sprintf("no such job in cluster: %q (jobs: [%s])", truncate(job),
		truncate(strings.Join(jobs, ", ")))}
}

// NotReadyError reports that a node or queued resource exists but cannot be used yet.
type NotReadyError struct {
	// Name is the name of the resource. State and Health are the values of the service.
	Name, State, Health string
	// Detail is the service's description of the problem. It may be empty.
	Detail string
	// Final is true if the resource will never become ready and must be created again.
	Final bool
}

// Error returns a message with the name, the state and the correction.
func (e *NotReadyError) Error() string {
	reason, hint := "state "+truncate(cmp.Or(e.State,
		"unknown")), "wait until it is ready, or set PollInterval so that the resolver waits"
	if e.Health != "" {
		reason += ", health " + truncate(e.Health)
	}
	if e.Detail != "" {
		reason += " (" + truncate(e.Detail) + ")"
	}
	if e.Final {
		hint = "it will not become ready: delete it and create it again"
	}
	return errkind.Format(fmt.Sprintf("clusterresolver: %s is not ready", truncate(e.Name)), reason, nil, hint)
}

// Kind returns RuntimeError.
func (*NotReadyError) Kind() errkind.Kind { return errkind.RuntimeError }

// APIError reports a failed call of the Cloud TPU API.
type APIError struct {
	// Op is the call, such as "nodes.get". Name is the name of the resource.
	Op, Name string
	// Code is the HTTP status, or 0 without a response.
	Code int
	// Message is the error text of the service. Err is the error of the client library.
	Message string
	Err     error
}

// Error returns a message with the call, the status, the error text and the correction.
func (e *APIError) Error() string {
	subject := "clusterresolver: cloud tpu api: " + e.Op + " " + truncate(e.Name)
	if e.Code != 0 {
		subject += fmt.Sprintf(": status %d", e.Code)
	}
	reason, hint := truncate(e.Message), ""
	if reason == "" && e.Err != nil {
		reason = truncate(e.Err.Error())
	}
	switch e.Code {
	case 401, 403:
		hint = "the caller needs tpu.nodes.get on the project"
	case 404:
		hint = "check the name, zone and project"
	}
	return errkind.Format(subject, reason, nil, hint)
}

// Kind returns the kind that corresponds to the HTTP status, or UnavailableError if there was no
// response.
func (e *APIError) Kind() errkind.Kind {
	if e.Code == 0 || e.Code < 300 {
		return errkind.KindOr(e.Err, apiKind(e.Code))
	}
	return apiKind(e.Code)
}

// Is reports whether the target is [ErrNotFound] and the status is 404.
func (e *APIError) Is(target error) bool { return target == ErrNotFound && e.Code == 404 }

// Unwrap returns the error of the client library.
func (e *APIError) Unwrap() error { return e.Err }

// Temporary reports whether a retry may succeed.
func (e *APIError) Temporary() bool {
	if errors.Is(e.Err, ErrRedirected) || errors.Is(e.Err, ErrTooLarge) {
		return false
	}
	switch e.Code {
	case 0, 408, 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// apiKind returns the error kind for an HTTP status.
func apiKind(code int) errkind.Kind {
	switch code {
	case 400, 409, 412:
		return errkind.ValueError
	case 401, 403:
		return errkind.PermissionDeniedError
	case 404:
		return errkind.NotFoundError
	case 429:
		return errkind.ResourceExhaustedError
	case 0, 500, 502, 503, 504:
		return errkind.UnavailableError
	}
	return errkind.RuntimeError
}
