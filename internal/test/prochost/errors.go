package prochost

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/handshake"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// fault returns an error of the given kind for the operation op.
func fault(op string, kind errkind.Kind, format string, args ...any) error {
	return &errkind.Fault{Op: "prochost: " + op, Reason: fmt.Sprintf(format, args...), Class: kind}
}

// MachineError reports, on a host, that the machine cannot be reached, has exited or does not
// respond.
type MachineError struct {
	// Address is the address of the machine. Op is the operation that failed.
	Address, Op string
	// Reason describes the failure.
	Reason string
	// Err is the cause, or nil.
	Err error
}

// Error returns the operation, the machine's address, the reason and the cause.
func (e *MachineError) Error() string {
	return errkind.Format(fmt.Sprintf("prochost: %s: the machine at %s", e.Op, e.Address), e.Reason, e.Err, "")
}

// Unwrap returns the cause.
func (e *MachineError) Unwrap() error { return e.Err }

// Kind returns PermissionDeniedError if the secret does not match, and UnavailableError otherwise.
func (e *MachineError) Kind() errkind.Kind {
	if errors.Is(e.Err, handshake.ErrSecret) {
		return errkind.PermissionDeniedError
	}
	return errkind.UnavailableError
}

// wireError is the JSON encoding of an error. At most one of its pointer fields is set. That field
// encodes an error of the corresponding type.
type wireError struct {
	Text  string
	Class errkind.Kind
	// Cause is causeDeadline, causeCancelled, or the text of another cause.
	Cause string `json:",omitempty"`

	Missing  *missing           `json:",omitempty"`
	Lost     *simhost.LostError `json:",omitempty"`
	Program  []simhost.Launch   `json:",omitempty"`
	Plugin   *pjrt.Error        `json:",omitempty"`
	Argument *argument          `json:",omitempty"`
	Compile  *pjrt.CompileError `json:",omitempty"`
}

// missing encodes a simhost.MissingError without its cause.
type missing struct {
	Op      string
	Here    int
	Missing []int
	Names   []string
}

// argument encodes a pjrt.ArgumentError without its cause.
type argument struct {
	Result        bool
	Device, Index int
	Reason, Hint  string
}

// Causes with their own encoding.
const (
	causeDeadline  = "deadline"
	causeCancelled = "cancelled"
)

// newWireError encodes err.
func newWireError(err error) *wireError {
	w := &wireError{Text: err.Error(), Class: errkind.KindOf(err)}
	var (
		m *simhost.MissingError
		l *simhost.LostError
		p *simhost.ProgramError
		a *pjrt.ArgumentError
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		w.Cause = causeDeadline
	case errors.Is(err, context.Canceled):
		w.Cause = causeCancelled
	}
	switch {
	case errors.As(err, &m):
		w.Missing = &missing{m.Op, m.Here, m.Missing, m.Names}
		if w.Cause == "" && m.Err != nil {
			w.Cause = m.Err.Error()
		}
	case errors.As(err, &l):
		w.Lost = l
	case errors.As(err, &p):
		w.Program = p.Launching
	case errors.As(err, &a):
		reason := a.Reason
		if a.Err != nil {
			reason = errkind.Format(reason, "", a.Err, "")
		}
		w.Argument = &argument{a.IsResult, a.Device, a.Index, reason, a.Hint}
	case errors.As(err, &w.Compile):
	case errors.As(err, &w.Plugin):
	}
	return w
}

// err decodes the error for a host. If ctx, the context of the host's call, has ended, the cause of
// ctx replaces the encoded cause.
func (w *wireError) err(ctx context.Context, op string) error {
	var cause error
	switch w.Cause {
	case "":
	case causeDeadline:
		cause = context.DeadlineExceeded
	case causeCancelled:
		cause = context.Canceled
	default:
		cause = errkind.New(w.Class, w.Cause)
	}
	if cause != nil && ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	switch {
	case w.Missing != nil:
		m := w.Missing
		return &simhost.MissingError{Op: m.Op, Here: m.Here, Missing: m.Missing, Names: m.Names, Err: cause}
	case w.Lost != nil:
		return w.Lost
	case w.Program != nil:
		return &simhost.ProgramError{Launching: w.Program}
	case w.Argument != nil:
		a := w.Argument
		return &pjrt.ArgumentError{IsResult: a.Result, Device: a.Device, Index: a.Index, Reason: a.Reason, Hint: a.Hint}
	case w.Compile != nil:
		return w.Compile
	case w.Plugin != nil:
		return w.Plugin
	}
	return &errkind.Fault{Op: "prochost: " + op, Reason: w.Text, Class: w.Class, Match: cause}
}
