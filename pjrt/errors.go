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

// The states in which an object cannot be used. Errors of this package match them with errors.Is.
var (
	// ErrClosed reports that the object, or the client that it belongs to, is closed, or that the
	// object is a zero value.
	ErrClosed = errkind.New(errkind.RuntimeError, "closed")
	// ErrDonated reports that the buffer was given to a program as a donated argument.
	ErrDonated = errkind.New(errkind.RuntimeError, "the buffer was donated")
	// ErrBusy reports that another call uses the buffer in a way that excludes this call.
	ErrBusy = errkind.New(errkind.RuntimeError, "the buffer is in use by another call")
	// ErrDeserialized reports that the program was loaded from serialized bytes and cannot be
	// serialized again: a plugin may write it without its machine code.
	ErrDeserialized = errkind.New(errkind.NotImplementedError, "the program was loaded from serialized bytes")
	// ErrBorrowed reports that the object belongs to another object, which is to be closed instead.
	ErrBorrowed = errkind.New(errkind.RuntimeError, "it belongs to another object")
)

// fail is the error of an operation for a cause that does not name the operation itself.
func fail(op, subject string, cause error) error {
	return &errkind.Fault{Op: "pjrt: " + op, Subject: subject, Err: cause}
}

// ended is the error of an operation whose context has ended.
func ended(ctx context.Context, op string) error { return fail(op, "", context.Cause(ctx)) }

// errNotMade is the error of a zero value.
func errNotMade(op, what, from string) error {
	return &errkind.Fault{Op: "pjrt: " + op, Reason: "the " + what + " is a zero value", Err: ErrClosed, Hint: "make it with " + from}
}

// Error reports what a plugin answered, or that the plugin lacks an entry point. It matches its
// Code, and errors.ErrUnsupported if the code is Unimplemented.
type Error struct {
	// Op is the operation, such as "compile".
	Op string
	// Code is the plugin's code.
	Code Code
	// Plugin is the path of the library.
	Plugin string
	// Msg is the first line of the plugin's message.
	Msg string
	// Log is the whole message where Msg is only its beginning.
	Log string
	// NeedsMinor is set if the plugin lacks the entry point: it is the minor version of the PJRT
	// API that brought the entry point.
	NeedsMinor int
}

// Error returns "pjrt: op: CODE: message (plugin); hint".
func (e *Error) Error() string {
	return errkind.Text("pjrt: "+e.Op, fmt.Sprintf("%s: %s (%s)", e.Code.Error(), e.Msg, filepath.Base(e.Plugin)), nil, e.hint())
}

// hint says what the caller can do, where that follows from the error alone. Callers that know more
// of the program, such as package strategy of its memory, say it themselves.
func (e *Error) hint() string {
	switch {
	case e.NeedsMinor > 0:
		return fmt.Sprintf("install a plugin that speaks PJRT 0.%d or newer", e.NeedsMinor)
	case strings.HasPrefix(e.Msg, "No PTX compilation provider"):
		return "have NVIDIA's assembler beside the plugin, where `tpustrategy install cuda` puts it, or ptxas on the PATH"
	}
	return ""
}

// Kind returns the kind of the code.
func (e *Error) Kind() errkind.Kind { return e.Code.Kind() }

// Unwrap returns the code.
func (e *Error) Unwrap() error { return e.Code }

// maxSummary bounds Error.Msg in bytes.
const maxSummary = 500

// wrap names the operation of an error that the C side reported.
func wrap(op, plugin string, err error) error {
	if err == nil {
		return nil
	}
	var c *capi.Error
	if !errors.As(err, &c) {
		return fail(op, "", err)
	}
	text := c.Error()
	e := &Error{Op: op, Code: Code(c.Code), Plugin: plugin, Msg: strings.TrimSpace(text), NeedsMinor: c.Minor}
	if line, _, more := strings.Cut(e.Msg, "\n"); more || len(line) > maxSummary {
		e.Msg, e.Log = line, text
		if len(line) > maxSummary {
			e.Msg = strings.ToValidUTF8(line[:maxSummary], "") + "..."
		}
	}
	return e
}

// option returns the error of an option or an attribute that cannot be passed to a plugin.
func option(name, hint, reason string, args ...any) error {
	return &errkind.Fault{Op: fmt.Sprintf("pjrt: option %q", name), Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}

// OpenError reports what keeps an object from closing. Close can be called again once that is
// closed.
type OpenError struct {
	// Op is the operation that was refused.
	Op string
	// Buffers, Executables and Topologies count the objects that are still open, and Calls the
	// calls that other goroutines are in.
	Buffers, Executables, Topologies, Calls int
}

// Error returns a text such as "pjrt: close client: still open: 2 buffers, 1 calls".
func (e *OpenError) Error() string {
	var parts []string
	for _, p := range []struct {
		n    int
		name string
	}{{e.Buffers, "buffers"}, {e.Executables, "executables"}, {e.Topologies, "topologies"}, {e.Calls, "calls"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.name))
		}
	}
	return errkind.Text("pjrt: "+e.Op, "still open: "+strings.Join(parts, ", "), nil, "")
}

// Kind returns FailedPreconditionError: what is open has to be closed first.
func (*OpenError) Kind() errkind.Kind { return errkind.FailedPreconditionError }
