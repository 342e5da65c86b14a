package clusterresolver

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ErrNotDetected matches every error that only says "this source does not apply here": a variable
// is not set, or there is no metadata server. A [Chain] goes on to its next resolver for such an
// error and for no other.
var ErrNotDetected = errkind.New(errkind.NotFoundError, "clusterresolver: not detected")

// ErrNotFound matches the error of a node, a queued resource or a metadata key that does not exist
// on a server that did answer.
var ErrNotFound = errkind.New(errkind.NotFoundError, "clusterresolver: not found")

// notDetected says why a resolver does not apply: what was missing and, where it helps, what to set.
func notDetected(resolver, reason string, cause error) error {
	return &errkind.Fault{Op: "clusterresolver: " + resolver + ": not detected", Match: ErrNotDetected, Reason: cut(reason), Err: cause}
}

// ParseError reports an input that is present but malformed. It never matches [ErrNotDetected],
// because going on to another source would hide the mistake.
type ParseError struct {
	// Source names the input: a variable, a metadata key or a JSON path.
	Source string
	// Value is the offending text, cut to a readable length.
	Value string
	// Reason says what is wrong. Hint says what to write instead; it may be empty.
	Reason, Hint string
	// Err is the cause, or nil.
	Err error
}

func (e *ParseError) Error() string {
	reason := e.Reason
	if e.Value != "" {
		reason += fmt.Sprintf(": got %q", e.Value)
	}
	return errkind.Text("clusterresolver: "+e.Source, reason, e.Err, e.Hint)
}

// Kind returns ValueError.
func (*ParseError) Kind() errkind.Kind { return errkind.ValueError }

// Unwrap returns the cause.
func (e *ParseError) Unwrap() error { return e.Err }

// maxQuoted bounds the input text that an error repeats, in bytes.
const maxQuoted = 120

func parseError(source, value, reason, hint string) *ParseError {
	if len(value) > maxQuoted {
		value = strings.ToValidUTF8(value[:maxQuoted], "") + "..."
	}
	return &ParseError{Source: cut(source), Value: value, Reason: reason, Hint: hint}
}

// ErrNoTask is matched by the error of a job or a task that a [ClusterSpec] does not have.
var ErrNoTask = errkind.New(errkind.ValueError, "clusterresolver")

// noJob is the error of a job that is none of those of a cluster.
func noJob(job string, jobs []string) error {
	return &errkind.Fault{Match: ErrNoTask, Reason: fmt.Sprintf("no such job in cluster: %q (jobs: [%s])", cut(job), cut(strings.Join(jobs, ", ")))}
}

// NotReadyError reports a node or a queued resource that exists but cannot be used now.
type NotReadyError struct {
	// Name is the resource name. State and Health are the service's own words.
	Name, State, Health string
	// Detail is the service's description of the trouble; it may be empty.
	Detail string
	// Final is true if waiting does not help, because the resource has to be created again.
	Final bool
}

func (e *NotReadyError) Error() string {
	reason, hint := "state "+cut(cmp.Or(e.State, "unknown")), "wait for it, or set PollInterval to let the resolver wait"
	if e.Health != "" {
		reason += ", health " + cut(e.Health)
	}
	if e.Detail != "" {
		reason += " (" + cut(e.Detail) + ")"
	}
	if e.Final {
		hint = "it will not become ready: delete it and create it again"
	}
	return errkind.Text(fmt.Sprintf("clusterresolver: %s is not ready", cut(e.Name)), reason, nil, hint)
}

// Kind returns RuntimeError.
func (*NotReadyError) Kind() errkind.Kind { return errkind.RuntimeError }

// APIError reports a call to the Cloud TPU API that failed.
type APIError struct {
	// Op is the call, such as "nodes.get". Name is the name of the resource.
	Op, Name string
	// Code is the HTTP status, or 0 if no answer came.
	Code int
	// Message is the service's text, and Err the client library's error.
	Message string
	Err     error
}

func (e *APIError) Error() string {
	what := "clusterresolver: cloud tpu api: " + e.Op + " " + cut(e.Name)
	if e.Code != 0 {
		what += fmt.Sprintf(": status %d", e.Code)
	}
	reason, hint := cut(e.Message), ""
	if reason == "" && e.Err != nil {
		reason = cut(e.Err.Error())
	}
	switch e.Code {
	case 401, 403:
		hint = "the caller needs tpu.nodes.get on the project"
	case 404:
		hint = "check name, zone and project"
	}
	return errkind.Text(what, reason, nil, hint)
}

// Kind returns the kind of the HTTP status, and UnavailableError if no answer came.
func (e *APIError) Kind() errkind.Kind {
	if e.Code == 0 || e.Code < 300 {
		return errkind.Or(e.Err, apiKind(e.Code))
	}
	return apiKind(e.Code)
}

// Is reports whether the target is [ErrNotFound], for status 404.
func (e *APIError) Is(target error) bool { return target == ErrNotFound && e.Code == 404 }

// Unwrap returns the client library's error.
func (e *APIError) Unwrap() error { return e.Err }

// Temporary reports whether the same call may succeed later.
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

// apiKind is the kind of an HTTP status.
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
