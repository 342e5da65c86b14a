package pjrt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// These errors report that an object cannot be used. Errors of this package wrap them.
var (
	// ErrClosed reports that the object or its client is closed, or that the object is a zero value.
	ErrClosed = errkind.New(errkind.RuntimeError, "the object is closed")
	// ErrDonated reports that the buffer was donated to a program.
	ErrDonated = errkind.New(errkind.RuntimeError, "the buffer was donated")
	// ErrBusy reports that a call requires exclusive use of a buffer while another call uses the buffer.
	ErrBusy = errkind.New(errkind.RuntimeError, "the buffer is in use by another call")
	// ErrDeserialized reports that the program was loaded from serialized bytes and cannot be
	// serialized again, because plugins may omit its machine code.
	ErrDeserialized = errkind.New(errkind.NotImplementedError, "the program was loaded from serialized bytes")
	// ErrBorrowed reports that the object belongs to another object, which must be closed instead.
	ErrBorrowed = errkind.New(errkind.RuntimeError, "it belongs to another object")
)

// opError adds the operation and its subject to an error.
func opError(op, subject string, cause error) error {
	return &errkind.Fault{Op: "pjrt: " + op, Subject: subject, Err: cause}
}

// closedError returns an error that matches ErrClosed for an object, such as "client".
func closedError(object string) error {
	return &errkind.Fault{Op: "the " + object + " is closed", Match: ErrClosed}
}

var errBufferClosed, errClientClosed, errExecutableClosed = closedError("buffer"), closedError("client"),
	closedError("executable")

// contextError returns the error of an operation whose context has ended.
func contextError(ctx context.Context, op string) error { return opError(op, "", context.Cause(ctx)) }

// zeroValueError returns an error for an operation on the zero value of a type. constructor is the
// name of the function that creates valid values.
func zeroValueError(op, object, constructor string) error {
	return &errkind.Fault{Op: "pjrt: " + op, Reason: "the " + object + " is a zero value", Match: ErrClosed,
		Hint: "create it with " + constructor}
}

// Error is an error that a plugin returned, or reports that the plugin does not implement a
// function. It matches its Code. If the Code is Unimplemented, it also matches
// errors.ErrUnsupported.
type Error struct {
	// Op is the operation, such as "compile".
	Op string
	// Code is the plugin's code.
	Code Code
	// Plugin is the path of the library.
	Plugin string
	// Msg is the first line of the plugin's message.
	Msg string
	// Log is the complete message if Msg is only its first line.
	Log string
	// NeedsMinor is the minor version of the PJRT API that introduced the function, if the plugin
	// does not implement the function. Otherwise it is 0.
	NeedsMinor int
}

// Error returns "pjrt: op: CODE: message (plugin); hint".
func (e *Error) Error() string {
	return errkind.Format("pjrt: "+e.Op, fmt.Sprintf("%s: %s (%s)", e.Code.Error(), e.Msg, filepath.Base(e.Plugin)), nil,
		e.hint())
}

// hint returns a suggested correction, or an empty string if none follows from the error alone.
func (e *Error) hint() string {
	switch {
	case e.NeedsMinor > 0:
		return fmt.Sprintf("install a plugin for PJRT 0.%d or newer", e.NeedsMinor)
	case strings.HasPrefix(e.Msg, "No PTX compilation provider"):
		return "run `tpustrategy install cuda`, which installs NVIDIA's assembler with the plugin, or add ptxas to the PATH"
	}
	return ""
}

// Kind returns the kind of the code.
func (e *Error) Kind() errkind.Kind { return e.Code.Kind() }

// Unwrap returns the code.
func (e *Error) Unwrap() error { return e.Code }

// maxSummary is the limit of the length of Error.Msg in bytes.
const maxSummary = 500

// wrapError converts an error of package capi to an Error with the operation and the path of the plugin.
func wrapError(op, plugin string, err error) error {
	if err == nil {
		return nil
	}
	var c *capi.Error
	if !errors.As(err, &c) {
		return opError(op, "", err)
	}
	text := c.Error()
	e := &Error{Op: op, Code: Code(c.Code), Plugin: plugin, Msg: strings.TrimSpace(text), NeedsMinor: c.RequiredMinor}
	if line, _, more := strings.Cut(e.Msg, "\n"); more || len(line) > maxSummary {
		e.Msg, e.Log = line, text
		if len(line) > maxSummary {
			e.Msg = strings.ToValidUTF8(line[:maxSummary], "") + "..."
		}
	}
	return e
}

// optionError returns the error for an option that cannot be passed to a plugin.
func optionError(name, hint, reason string, args ...any) error {
	return &errkind.Fault{Op: fmt.Sprintf("pjrt: option %q", name), Reason: fmt.Sprintf(reason, args...), Hint: hint,
		Class: errkind.ValueError}
}

// InUseError reports that a client cannot be closed because some of its objects are open or calls
// are running. The client can be closed after the objects are closed.
type InUseError struct {
	// Op is the operation that failed.
	Op string
	// Buffers, Executables and Topologies are the numbers of open objects. Calls is the number of
	// running calls.
	Buffers, Executables, Topologies, Calls int
}

// Error returns a text such as "pjrt: close client: still open: 2 buffers, 1 calls".
func (e *InUseError) Error() string {
	var parts []string
	for _, p := range []struct {
		n    int
		name string
	}{{e.Buffers, "buffers"}, {e.Executables, "executables"}, {e.Topologies, "topologies"}, {e.Calls, "calls"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.name))
		}
	}
	return errkind.Format("pjrt: "+e.Op, "still open: "+strings.Join(parts, ", "), nil, "")
}

// Kind returns FailedPreconditionError.
func (*InUseError) Kind() errkind.Kind { return errkind.FailedPreconditionError }
