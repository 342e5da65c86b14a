package pjrt

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// Sentinel errors. Errors of this package match them with errors.Is.
var (
	// ErrClosed: the object, or the client that it belongs to, is closed.
	ErrClosed = errkind.New(errkind.RuntimeError, "pjrt: closed")
	// ErrDonated: the buffer was given to a program as a donated argument.
	ErrDonated = errkind.New(errkind.RuntimeError, "pjrt: buffer was donated")
	// ErrBusy: another call is using the buffer in a way that excludes this one.
	ErrBusy = errkind.New(errkind.RuntimeError, "pjrt: buffer is in use by another call")
	// ErrDeserialized: the program came from serialized bytes, so that it cannot be
	// serialized again: a plugin may write it without its machine code.
	ErrDeserialized = errkind.New(errkind.NotImplementedError, "pjrt: the program came from serialized bytes; keep those")
	// ErrBorrowed: the object belongs to another one, which is to be closed instead.
	ErrBorrowed = errkind.New(errkind.RuntimeError, "pjrt: not owned, close its owner instead")
)

// Code is a PJRT error code. It is itself an error, so that
// errors.Is(err, pjrt.ResourceExhausted) works at any depth.
type Code int

// The codes of PJRT_Error_Code.
const (
	OK Code = iota
	Cancelled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
)

var codeNames = [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL",
	"UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// String is the C constant, such as "PJRT_Error_Code_RESOURCE_EXHAUSTED".
func (c Code) String() string { return "PJRT_Error_Code_" + c.Error() }

// Error is the short name, such as "RESOURCE_EXHAUSTED".
func (c Code) Error() string {
	if c < 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("CODE_%d", int(c))
	}
	return codeNames[c]
}

// Kind is that of TensorFlow for the same code.
func (c Code) Kind() errkind.Kind { return codeKind(c) }

func codeKind(c Code) errkind.Kind {
	switch c {
	case Cancelled:
		return errkind.CancelledError
	case InvalidArgument:
		return errkind.InvalidArgumentError
	case DeadlineExceeded:
		return errkind.DeadlineExceededError
	case NotFound:
		return errkind.NotFoundError
	case PermissionDenied, Unauthenticated:
		return errkind.PermissionDeniedError
	case ResourceExhausted:
		return errkind.ResourceExhaustedError
	case FailedPrecondition, Aborted, AlreadyExists:
		return errkind.FailedPreconditionError
	case OutOfRange:
		return errkind.OutOfRangeError
	case Unimplemented:
		return errkind.NotImplementedError
	case Unavailable:
		return errkind.UnavailableError
	case DataLoss:
		return errkind.DataLossError
	}
	return errkind.InternalError
}

// Is makes Unimplemented match errors.ErrUnsupported.
func (c Code) Is(target error) bool { return c == Unimplemented && target == errors.ErrUnsupported }

// Error is what a plugin answered, or that it lacks an entry point. It matches
// its Code, and errors.ErrUnsupported if the code is Unimplemented.
type Error struct {
	// Op is the operation, such as "compile".
	Op   string
	Code Code
	// Plugin is the path of the library.
	Plugin string
	// Msg is the first line of the plugin's message.
	Msg string
	// Log is the whole message where Msg is not.
	Log string
	// NeedsMinor is set if the plugin lacks the entry point: the PJRT API minor
	// version that brought it.
	NeedsMinor int
}

func (e *Error) Error() string {
	return fmt.Sprintf("pjrt: %s: %s: %s (%s)", e.Op, e.Code.Error(), e.Msg, filepath.Base(e.Plugin))
}

// Kind is the code's.
func (e *Error) Kind() errkind.Kind { return e.Code.Kind() }

// Unwrap answers the code.
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
		return fmt.Errorf("pjrt: %s: %w", op, err)
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

// PluginReason says why a file is no usable plugin.
type PluginReason int

// The reasons, in the order in which Open looks for them.
const (
	PluginMissing    PluginReason = iota + 1 // no such file, or not readable
	PluginNotFile                            // a directory, a pipe, ...
	PluginUntrusted                          // others can put another library there
	PluginNotLibrary                         // not a shared library of this system
	PluginTruncated                          // a shared library that ends too early
	PluginWrongArch                          // a shared library for other machines
	PluginNoEntry                            // no GetPjrtApi in it
	PluginNotLoaded                          // the dynamic loader refused it
	PluginBadTable                           // GetPjrtApi answered nothing usable
	PluginVersion                            // an API version that this package does not speak
	PluginInitialize                         // PJRT_Plugin_Initialize failed
	PluginChanged                            // not the library of OpenOptions.SHA256
)

func (r PluginReason) kind() errkind.Kind {
	switch r {
	case PluginMissing:
		return errkind.NotFoundError
	case PluginUntrusted, PluginChanged:
		return errkind.PermissionDeniedError
	}
	return errkind.RuntimeError
}

var pluginReasons = map[PluginReason]string{PluginMissing: "missing", PluginNotFile: "not a regular file",
	PluginUntrusted: "not trusted", PluginChanged: "another library",
	PluginNotLibrary: "not a shared library", PluginTruncated: "truncated", PluginWrongArch: "built for another machine",
	PluginNoEntry: "not a PJRT plugin", PluginNotLoaded: "cannot be loaded", PluginBadTable: "bad function table",
	PluginVersion: "unsupported API version", PluginInitialize: "failed to initialize"}

// String is a short phrase.
func (r PluginReason) String() string { return pluginReasons[r] }

// PathError is that a path is not used: it is a URL, what is there is a pipe or a
// device, or others could change it. See its Reason, Found and Hint.
type PathError = files.Error

// PluginError is why Open refused a file. It matches what Err matches, such as
// fs.ErrNotExist.
type PluginError struct {
	Path   string
	Reason PluginReason
	// Detail adds what was found and what was expected.
	Detail string
	Err    error
}

func (e *PluginError) Error() string {
	s := fmt.Sprintf("pjrt: plugin %s: %v", e.Path, e.Reason)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Kind says whether the file is not there, not to be trusted, or no plugin.
func (e *PluginError) Kind() errkind.Kind { return e.Reason.kind() }

// Unwrap answers the cause, which may be nil.
func (e *PluginError) Unwrap() error { return e.Err }

// OptionError names an option or attribute that cannot be passed to a plugin.
type OptionError struct {
	Name   string
	Value  any
	Detail string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("pjrt: option %q: %s", e.Name, e.Detail)
}

// Kind is ValueError.
func (*OptionError) Kind() errkind.Kind { return errkind.ValueError }

// CompileError says what is wrong with a program or its options before any
// plugin sees them.
type CompileError struct {
	// Field is the field of CompileOptions or Program.
	Field  string
	Detail string
}

func (e *CompileError) Error() string { return fmt.Sprintf("pjrt: compile: %s: %s", e.Field, e.Detail) }

// Kind is InvalidArgumentError.
func (*CompileError) Kind() errkind.Kind { return errkind.InvalidArgumentError }

// BytecodeError is MLIR bytecode, or a serialized HLO proto, that was to be compiled in
// this process: wrong bytes can end it, or corrupt its memory without a word. Compile it
// with package pjrt/worker, in a process of its own; or give the program as text; or, if
// its writer is trusted, set [CompileOptions].TrustBytecode. It matches [*CompileError].
type BytecodeError struct {
	// Format is the program's: FormatMLIR for bytecode, or FormatHLO or FormatHLOWithConfig.
	Format string
}

func (e *BytecodeError) Error() string { return e.compileError().Error() }

func (e *BytecodeError) compileError() *CompileError {
	what := "MLIR bytecode"
	if e.Format != "" && e.Format != FormatMLIR {
		what = "a serialized program of format " + e.Format
	}
	return &CompileError{"Program.Code", "it is " + what + ", and wrong bytes of it can corrupt this process: compile it with package pjrt/worker in a process of its own, give the program as text, or set CompileOptions.TrustBytecode if nobody else can have changed it"}
}

// As gives the error as a *CompileError.
func (e *BytecodeError) As(target any) bool {
	c, ok := target.(**CompileError)
	if ok {
		*c = e.compileError()
	}
	return ok
}

// Kind is PermissionDeniedError.
func (*BytecodeError) Kind() errkind.Kind { return errkind.PermissionDeniedError }

// OpenError says what keeps an object from closing. Close can be called again.
type OpenError struct {
	// Op is the refused operation.
	Op string
	// Buffers, Executables and Topologies count what is still open, Calls the
	// calls that other goroutines are in.
	Buffers, Executables, Topologies, Calls int
}

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
	return fmt.Sprintf("pjrt: %s: still open: %s", e.Op, strings.Join(parts, ", "))
}

// Kind is FailedPreconditionError: what is open has to be closed.
func (*OpenError) Kind() errkind.Kind { return errkind.FailedPreconditionError }

// ArgumentError names one buffer of an Execute call. Nothing was executed.
type ArgumentError struct {
	// Result is true for a result slot, false for an argument.
	Result bool
	// Device is the position in launch order, Index the parameter or result
	// number; -1 where the list itself is wrong.
	Device, Index int
	// Detail says what was found, what was expected, and what to write instead.
	Detail string
	// Err is ErrClosed, ErrDonated, ErrBusy or nil.
	Err error
}

func (e *ArgumentError) Error() string {
	what := "argument"
	if e.Result {
		what = "result"
	}
	s := "pjrt: execute: " + what + "s"
	switch {
	case e.Index >= 0:
		s = fmt.Sprintf("pjrt: execute: %s %d of device %d", what, e.Index, e.Device)
	case e.Device >= 0:
		s = fmt.Sprintf("pjrt: execute: %ss of device %d", what, e.Device)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + strings.TrimPrefix(e.Err.Error(), "pjrt: ")
	}
	return s
}

// Kind is the cause's, otherwise InvalidArgumentError.
func (e *ArgumentError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.InvalidArgumentError) }

// Unwrap answers the sentinel, which may be nil.
func (e *ArgumentError) Unwrap() error { return e.Err }
