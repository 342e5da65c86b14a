package strategy

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// Gathering is a [TPUStrategy.GatherBytes] under way. Any goroutine may call its methods; one calls
// Wait at a time.
type Gathering struct {
	call string

	mu   sync.Mutex
	sent *launched // nil when it is read or closed
	all  [][]byte
	err  error
}

// maxGathering bounds the message of a [Gathering] together with its name, in bytes.
const maxGathering = 4*firstWords - 4 - 4 - len("gather ")

// StartGather begins a [TPUStrategy.GatherBytes] and does not wait for it: the exchange is a launch
// among the steps, whose result is read some steps later, when it has long been there. So a loop
// that runs ahead of its devices does not stop for it. All processes call it with the same
// name, in the same order among their launches; ctx bounds the launch.
//
// The bytes together with the name are 497 at the most. Close what it returns.
func (s *TPUStrategy) StartGather(ctx context.Context, name string, mine []byte) (*Gathering, error) {
	call := "gather " + name
	if err := untraced(ctx, call, fault.InsteadOfMeeting); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(name)+len(mine) > maxGathering {
		return nil, fault.New(ValueError, call, "use GatherBytes, which waits for it", "%d bytes with its name, where %d are the most", len(name)+len(mine), maxGathering)
	}
	g := &Gathering{call: call}
	if !s.processes.several() {
		g.all = [][]byte{slices.Clone(mine)}
		return g, nil
	}
	var err error
	if g.sent, err = s.launchExchange(ctx, firstWords, appendMessage(nil, call, mine)); err != nil {
		return nil, fault.Of(call, err, "")
	}
	return g, nil
}

// Wait returns the bytes of all processes, by process, as [TPUStrategy.GatherBytes] does. ctx
// bounds the wait; when ctx ends Wait may be called again. A later Wait returns the same, and after
// Close an error that matches [ErrClosed], unless it was read before.
func (g *Gathering) Wait(ctx context.Context) ([][]byte, error) {
	if err := untraced(ctx, g.call, fault.InsteadOfMeeting); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sent == nil {
		return g.all, g.err
	}
	defer activity.Begin(ctx, activity.Exchange, g.call)()
	rows, _, err := g.sent.read(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, fault.Of(g.call, err, "")
	}
	if err == nil {
		g.all, err = readMessages(g.call, rows)
	} else {
		err = fault.Of(g.call, err, "")
	}
	sent := g.sent
	g.sent = nil
	g.err = errors.Join(err, sent.close())
	return g.all, g.err
}

// Close releases what the exchange holds on the devices, read or not. It does not wait. A second
// Close does nothing.
func (g *Gathering) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sent == nil {
		return nil
	}
	sent := g.sent
	g.sent, g.err = nil, &errkind.Fault{Op: "strategy: " + g.call, Reason: "it was closed before it was read", Match: ErrClosed, Hint: "call Wait first"}
	return sent.close()
}
