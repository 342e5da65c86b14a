package engine

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/activity"
)

// GatherFuture is the future result of [Runtime.StartGather]. Its methods may be called from any
// goroutine, but Wait must not be called concurrently.
type GatherFuture struct {
	call string

	mu   sync.Mutex
	sent *pendingExchange // nil after it was read or closed
	all  [][]byte
	err  error
}

// StartGather is like [Runtime.Gather] but does not wait for the messages of the other processes.
// ctx applies to the launch only. The caller must close the result.
func (m *Runtime) StartGather(ctx context.Context, call string, mine []byte) (*GatherFuture, error) {
	if len(call)+len(mine) > MaxAsyncMessage {
		return nil, m.fault(errkind.ValueError, call, "use GatherBytes, which waits for it",
			"%d bytes with its name, where %d are the most", len(call)+len(mine), MaxAsyncMessage)
	}
	g := &GatherFuture{call: call}
	if !m.IsMultiProcess() {
		g.all = [][]byte{slices.Clone(mine)}
		return g, nil
	}
	var err error
	if g.sent, err = m.send(ctx, firstWords, appendMessage(nil, call, mine)); err != nil {
		return nil, m.wrapError(call, err)
	}
	return g, nil
}

// Wait returns the messages of all processes, indexed by process. If ctx is canceled, Wait returns
// an error and may be called again. Later calls return the same messages. If Close was called
// before the messages were received, Wait returns an error that matches [Options].Closed.
func (g *GatherFuture) Wait(ctx context.Context) ([][]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sent == nil {
		return g.all, g.err
	}
	defer activity.Begin(ctx, activity.Exchange, g.call)()
	m := g.sent.runtime
	rows, _, err := g.sent.receive(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, m.wrapError(g.call, err)
	}
	if err == nil {
		g.all, err = m.parseMessages(g.call, rows)
	} else {
		err = m.wrapError(g.call, err)
	}
	done := g.sent
	g.sent = nil
	g.err = errors.Join(err, done.close())
	return g.all, g.err
}

// Close releases the device buffers of the exchange without waiting. A second Close does nothing.
func (g *GatherFuture) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sent == nil {
		return nil
	}
	of := g.sent.runtime.opts
	g.err = &errkind.Fault{Op: of.ErrorPrefix + ": " + g.call, Reason: "it was closed before it was read",
		Match: of.Closed, Hint: "call Wait first"}
	done := g.sent
	g.sent = nil
	return done.close()
}
