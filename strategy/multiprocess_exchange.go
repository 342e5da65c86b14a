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

// GatherBytes exchanges bytes between the processes: every process passes its own and receives the
// bytes of all processes, by process. All processes call it with the same name, which says what the
// bytes are; if a process is in another call, all receive [ErrOutOfStep]. The bytes of a process
// may have any length up to a megabyte together with the name. The context bounds the wait for the
// other processes; where a process does not come, the error is that of the system's runtime, or the
// context's.
//
// It costs a launch, and a copy of half a kilobyte for each device to the host. It waits for the
// steps that were launched before it.
func (s *TPUStrategy) GatherBytes(ctx context.Context, name string, mine []byte) ([][]byte, error) {
	return s.gatherBytes(ctx, "gather "+name, mine)
}

// Barrier waits until every process has called Barrier with this name.
func (s *TPUStrategy) Barrier(ctx context.Context, name string) error {
	_, err := s.gatherBytes(ctx, "barrier "+name, nil)
	return err
}

// BroadcastBytes returns the bytes that process 0 passes on every process. The bytes of the other
// processes are ignored. All processes call it with the same name.
func (s *TPUStrategy) BroadcastBytes(ctx context.Context, name string, value []byte) ([]byte, error) {
	if s.machine.Process != 0 {
		value = nil
	}
	all, err := s.gatherBytes(ctx, "broadcast "+name, value)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// AnyProcess reports whether any process passes true. All processes call it. It is the function for
// input.Options.AnyProcess.
func (s *TPUStrategy) AnyProcess(ctx context.Context, mine bool) (bool, error) {
	var vote []byte
	if mine {
		vote = []byte{1}
	}
	all, err := s.gatherBytes(ctx, "vote", vote)
	return slices.ContainsFunc(all, func(v []byte) bool { return len(v) > 0 }), err
}

// gatherBytes exchanges messages of a call.
func (s *TPUStrategy) gatherBytes(ctx context.Context, call string, mine []byte) ([][]byte, error) {
	if err := RefuseTracing(ctx, call, fault.InsteadOfMeeting); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.machine.Gather(ctx, call, mine)
}

// Every process traces, lowers and compiles its own program, and all must come to the same one:
// processes that launch different programs hang a slice. So before a program is compiled, the
// processes compare fingerprints of it.

// Agree compares a text over the processes, for what depends on files, flags or the environment and
// must be the same on all processes, such as the number of examples. It returns a [*MismatchError]
// on every process if the text of any process differs. All processes call it. The comparison takes
// the whole text; the error shows 300 bytes of it.
func (s *TPUStrategy) Agree(ctx context.Context, what, text string) error {
	if err := RefuseTracing(ctx, "compare "+what, fault.InsteadOfMeeting); err != nil {
		return err
	}
	return s.agree(ctx, what, text, []byte(text))
}

func (s *TPUStrategy) agree(ctx context.Context, what, text string, content []byte) error {
	if err := s.check(); err != nil {
		return err
	}
	return s.machine.Agree(ctx, what, text, content)
}

// agree compares a program before it is compiled. A process that cannot make one, failed,
// says so to the others instead of leaving them waiting; its own error comes first.
func (f *Function) agree(ctx context.Context, values []Value, m *spmd.Module, t *trace, failed error) error {
	if !f.strategy.machine.Several() {
		return failed
	}
	what := fmt.Sprintf("program %q", f.opts.Name)
	if failed != nil {
		if err := f.strategy.agree(ctx, what, "no program, because of "+failed.Error(), []byte("failed")); err != nil {
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
	return f.strategy.agree(ctx, what, fmt.Sprintf("arguments [%s]", text.String()), content.Bytes())
}
