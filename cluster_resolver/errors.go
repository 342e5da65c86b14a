package clusterresolver

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ErrNotDetected is matched by every error that only says "this source does not
// apply here": a variable that is not set, a metadata server that is not there.
// A [Chain] goes on to its next resolver for such an error and for no other.
var ErrNotDetected = errkind.New(errkind.NotFoundError, "clusterresolver: not detected")

// ErrNotFound is matched when a named node, queued resource or metadata key does
// not exist on a server that did answer.
var ErrNotFound = errkind.New(errkind.NotFoundError, "clusterresolver: not found")

// NotDetectedError is the reason why a resolver does not apply. It matches
// [ErrNotDetected], and whatever Err holds.
type NotDetectedError struct {
	// Resolver names the resolver, such as "tf_config".
	Resolver string
	// Reason says what was missing and, where it helps, what to set.
	Reason string
	// Err is the cause, or nil.
	Err error
}

func (e *NotDetectedError) Error() string {
	s := "clusterresolver: " + e.Resolver + ": not detected: " + cut(e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Kind is NotFoundError.
func (*NotDetectedError) Kind() errkind.Kind { return errkind.NotFoundError }

// Is reports a match with [ErrNotDetected].
func (e *NotDetectedError) Is(target error) bool { return target == ErrNotDetected }

// Unwrap returns the cause.
func (e *NotDetectedError) Unwrap() error { return e.Err }

// ParseError is an input that is present but malformed. It never matches
// [ErrNotDetected]: falling through to another source would hide the mistake.
type ParseError struct {
	// Source names the input: a variable, a metadata key, a JSON path.
	Source string
	// Value is the offending text, cut to a readable length.
	Value string
	// Reason says what is wrong, Hint what to write instead (it may be empty).
	Reason, Hint string
	// Err is the cause, or nil.
	Err error
}

func (e *ParseError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "clusterresolver: %s: %s", e.Source, e.Reason)
	if e.Value != "" {
		fmt.Fprintf(&b, ": got %q", e.Value)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Kind is ValueError.
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

// LookupError is a job or task that a [ClusterSpec] does not have.
type LookupError struct {
	// Job and Index are what was asked for.
	Job   string
	Index int
	// NoJob reports that the job itself is missing; Index says nothing then.
	NoJob bool
	// Have lists what there is: job names, or the job's task indices as text.
	Have []string
}

func (e *LookupError) Error() string {
	have := cut(strings.Join(e.Have, ", "))
	if e.NoJob {
		return fmt.Sprintf("clusterresolver: no such job in cluster: %q (jobs: [%s])", cut(e.Job), have)
	}
	return fmt.Sprintf("clusterresolver: no task with index %d in job %q (indices: [%s])", e.Index, cut(e.Job), have)
}

// Kind is ValueError.
func (*LookupError) Kind() errkind.Kind { return errkind.ValueError }

// NotReadyError is a node or a queued resource that exists but cannot be used now.
type NotReadyError struct {
	// Name is the resource name, State and Health are the service's own words.
	Name, State, Health string
	// Detail is the service's description of the trouble; it may be empty.
	Detail string
	// Final reports that waiting does not help: the resource has to be made anew.
	Final bool
}

func (e *NotReadyError) Error() string {
	s := fmt.Sprintf("clusterresolver: %s is not ready: state %s", cut(e.Name), cut(orUnknown(e.State)))
	if e.Health != "" {
		s += ", health " + cut(e.Health)
	}
	if e.Detail != "" {
		s += " (" + cut(e.Detail) + ")"
	}
	if e.Final {
		return s + "; it will not become ready: delete it and create it again"
	}
	return s + "; wait for it, or set PollInterval to let the resolver wait"
}

// Kind is RuntimeError.
func (*NotReadyError) Kind() errkind.Kind { return errkind.RuntimeError }

// APIError is a call to the Cloud TPU API that failed.
type APIError struct {
	// Op is the call, such as "nodes.get"; Name the resource asked for.
	Op, Name string
	// Code is the HTTP status, or 0 if no answer came.
	Code int
	// Message is the service's text, Err the client library's error.
	Message string
	Err     error
}

func (e *APIError) Error() string {
	s := "clusterresolver: cloud tpu api: " + e.Op + " " + cut(e.Name)
	if e.Code != 0 {
		s += fmt.Sprintf(": status %d", e.Code)
	}
	switch {
	case e.Message != "":
		s += ": " + cut(e.Message)
	case e.Err != nil:
		s += ": " + cut(e.Err.Error())
	}
	switch e.Code {
	case 401, 403:
		s += "; the caller needs tpu.nodes.get on the project"
	case 404:
		s += "; check name, zone and project"
	}
	return s
}

// Kind follows the HTTP status; it is UnavailableError if no answer came.
func (e *APIError) Kind() errkind.Kind {
	if e.Code == 0 || e.Code < 300 {
		return errkind.Or(e.Err, apiKind(e.Code))
	}
	return apiKind(e.Code)
}

// Is matches [ErrNotFound] for status 404.
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

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// apiKind is what an HTTP status comes to.
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
