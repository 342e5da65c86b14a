package strategy

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// GatherBytes exchanges bytes between the processes. Every process passes its own bytes and
// receives the bytes of all processes, by process. All processes must call it with the same name,
// which identifies the exchange; if a process is in another call, all receive [ErrOutOfStep]. Each
// process may pass any number of bytes, up to one megabyte including the name. The context bounds
// the wait for the other processes. If a process does not call GatherBytes, the error is the error
// of the system's runtime or of the context.
//
// An exchange costs one launch, and a copy of half a kilobyte per device to the host. It waits for
// the steps that were launched before.
func (s *TPUStrategy) GatherBytes(ctx context.Context, name string, message []byte) ([][]byte, error) {
	return s.gatherBytes(ctx, "gather "+name, message)
}

// Barrier waits until every process has called Barrier with the same name.
func (s *TPUStrategy) Barrier(ctx context.Context, name string) error {
	_, err := s.gatherBytes(ctx, "barrier "+name, nil)
	return err
}

// BroadcastBytes returns the value that process 0 passes, on every process. The values of the other
// processes are ignored. All processes must call it with the same name.
func (s *TPUStrategy) BroadcastBytes(ctx context.Context, name string, value []byte) ([]byte, error) {
	if s.runtime.Process != 0 {
		value = nil
	}
	all, err := s.gatherBytes(ctx, "broadcast "+name, value)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// AnyProcess reports whether at least one process passes true. All processes must call it. It
// implements input.Options.AnyProcess.
func (s *TPUStrategy) AnyProcess(ctx context.Context, value bool) (bool, error) {
	var vote []byte
	if value {
		vote = []byte{1}
	}
	all, err := s.gatherBytes(ctx, "vote", vote)
	return slices.ContainsFunc(all, func(v []byte) bool { return len(v) > 0 }), err
}

func (s *TPUStrategy) gatherBytes(ctx context.Context, call string, message []byte) ([][]byte, error) {
	if err := RefuseTracing(ctx, call, fault.InsteadOfMeeting); err != nil {
		return nil, err
	}
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	return s.runtime.Gather(ctx, call, message)
}

// Every process traces, lowers and compiles its own program. If processes launch different
// programs, the slice hangs. The processes therefore compare fingerprints of each program before
// they compile it.

// CheckSame compares a text across the processes. Use it for values that depend on files, flags or the
// environment and must be the same on all processes, such as the number of examples. It returns a
// [*MismatchError] on every process if the text of any process differs. All processes must call it.
// The complete text is compared; the error contains its first 300 bytes.
func (s *TPUStrategy) CheckSame(ctx context.Context, what, text string) error {
	if err := RefuseTracing(ctx, "compare "+what, fault.InsteadOfMeeting); err != nil {
		return err
	}
	return s.checkAgreement(ctx, what, text, []byte(text))
}

func (s *TPUStrategy) checkAgreement(ctx context.Context, what, text string, content []byte) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	return s.runtime.CheckAgreement(ctx, what, text, content)
}

// checkAgreement compares a program across the processes before it is compiled. If this process has no
// program because of the error failed, it informs the other processes and returns failed.
func (f *Function) checkAgreement(ctx context.Context, values []Value, m *spmd.Module, t *trace, failed error) error {
	if !f.strategy.runtime.IsMultiProcess() {
		return failed
	}
	what := fmt.Sprintf("program %q", f.opts.Name)
	if failed != nil {
		if err := f.strategy.checkAgreement(ctx, what, "no program, because of "+failed.Error(),
			[]byte("failed")); err != nil {
			if _, ok := err.(*MismatchError); !ok {
				return fmt.Errorf("%w (and telling the other processes failed: %v)", failed, err)
			}
		}
		return failed
	}
	var text strings.Builder
	for i, v := range values {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(v.base().String())
	}
	var content bytes.Buffer
	fmt.Fprintln(&content, f.strategy.assignment.DeviceIDs())
	t.writeConstants(&content)
	content.Write(m.Text)
	return f.strategy.checkAgreement(ctx, what, fmt.Sprintf("arguments [%s]", text.String()), content.Bytes())
}
