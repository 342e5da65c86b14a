package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// OrderError reports that the processes of a job called the strategy in different orders: each
// waits for the others in another call.
type OrderError struct {
	// Calls are the calls that the processes are in, by process.
	Calls []string
}

// Error says which call each process is in.
func (e *OrderError) Error() string {
	calls := make([]string, len(e.Calls))
	for i, call := range e.Calls {
		calls[i] = fmt.Sprintf("process %d is at %s", i, call)
	}
	return errkind.Text("strategy: the processes are out of step", strings.Join(calls, ", "), nil, "make the same calls in the same order on each")
}

// Kind returns RuntimeError.
func (e *OrderError) Kind() Kind { return RuntimeError }

// GatherBytes exchanges bytes between the processes: every process passes its own and receives the
// bytes of all processes, by process. All processes call it with the same name, which says what the
// bytes are; if a process is in another call, all receive an [*OrderError]. The bytes of a process
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
	if s.devices == nil { // ahead of time there is one process
		return [][]byte{slices.Clone(mine)}, nil
	}
	all, err := s.devices.Gather(ctx, call, mine)
	return all, inOrder(err)
}

// inOrder makes the errors of processes that differ the contract's.
func inOrder(err error) error {
	if of := (*mesh.OrderError)(nil); errors.As(err, &of) {
		return &OrderError{Calls: of.Calls}
	}
	if of := (*mesh.MismatchError)(nil); errors.As(err, &of) {
		return &MismatchError{What: of.What, Texts: of.Texts, Differing: of.Differing}
	}
	return err
}

// Gathering is a [TPUStrategy.GatherBytes] under way. Any goroutine may call its methods; one calls
// Wait at a time.
type Gathering struct {
	call string
	of   *mesh.Gathering
}

// StartGather begins a [TPUStrategy.GatherBytes] and does not wait for it: the exchange is a launch
// among the steps, whose result is read some steps later, when it has long been there. So a loop
// that runs ahead of its devices does not stop for it. All processes call it with the same
// name, in the same order among their launches; ctx bounds the launch.
//
// The bytes together with the name are 497 at the most. Close what it returns.
func (s *TPUStrategy) StartGather(ctx context.Context, name string, mine []byte) (*Gathering, error) {
	call := "gather " + name
	if err := RefuseTracing(ctx, call, fault.InsteadOfMeeting); err != nil {
		return nil, err
	}
	if err := s.runnable(call); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	of, err := s.devices.StartGather(ctx, call, mine)
	if err != nil {
		return nil, err
	}
	return &Gathering{call, of}, nil
}

// Wait returns the bytes of all processes, by process, as [TPUStrategy.GatherBytes] does. ctx
// bounds the wait; when ctx ends Wait may be called again. A later Wait returns the same, and after
// Close an error that matches [ErrClosed], unless it was read before.
func (g *Gathering) Wait(ctx context.Context) ([][]byte, error) {
	if err := RefuseTracing(ctx, g.call, fault.InsteadOfMeeting); err != nil {
		return nil, err
	}
	all, err := g.of.Wait(ctx)
	return all, inOrder(err)
}

// Close releases what the exchange holds on the devices, read or not. It does not wait. A second
// Close does nothing.
func (g *Gathering) Close() error { return g.of.Close() }
