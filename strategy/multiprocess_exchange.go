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

// GatherBytes exchanges bytes between the processes and returns the message of each process. All
// processes must call it with the same name; if a process is in another call, all receive
// [ErrOutOfStep]. A message may have one megabyte including the name. The context bounds the wait
// for the other processes. The exchange is one launch after the steps that are already launched,
// and copies half a kilobyte per device to the host.
func (s *TPUStrategy) GatherBytes(ctx context.Context, name string, message []byte) ([][]byte, error) {
	return s.gatherBytes(ctx, "gather "+name, message)
}

// Barrier waits until every process has called Barrier with the same name.
func (s *TPUStrategy) Barrier(ctx context.Context, name string) error {
	_, err := s.gatherBytes(ctx, "barrier "+name, nil)
	return err
}

// BroadcastBytes returns process 0's value on every process. All processes must call it with the
// same name.
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

// AnyProcess reports whether any process passes true. All processes must call it. It implements
// input.Options.AnyProcess.
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

// CheckSame returns an error if the processes pass different texts. Use it for values that must be
// the same on all processes but depend on files or flags, such as the number of examples. All
// processes must call it. If any text differs, all receive a [*MismatchError], which contains the
// first 300 bytes of each text.
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

// checkAgreement returns an error if the processes are about to compile different programs. If this
// process has no program because of an earlier error, which is passed as failed, checkAgreement
// notifies the other processes and returns that error.
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
