package pjrt

import (
	"context"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// notify has done called, once, with the outcome of the event, which it takes over. done runs on
// the reading goroutine and must not block. The caller holds the client open; what it waits for
// does from now on.
func (c *core) notify(event capi.Event, done func(error)) error {
	w := &c.waits
	w.mu.Lock()
	if err := w.start(c.api); err != nil {
		w.mu.Unlock()
		c.api.EventDestroy(event)
		return err
	}
	w.next++
	slot := w.next
	live.Add(live.Wait, unsafe.Pointer(event))
	c.add(childWork, 1)
	w.pending[slot] = func(err error) {
		live.Remove(live.Wait, unsafe.Pointer(event))
		done(err)
		c.release(childWork)
	}
	w.mu.Unlock()
	err := c.api.EventNotify(event, w.fd, slot)
	if err != nil {
		w.mu.Lock()
		delete(w.pending, slot)
		w.mu.Unlock()
		live.Remove(live.Wait, unsafe.Pointer(event))
		c.release(childWork)
	}
	c.api.EventDestroy(event)
	return err
}

// wait blocks until the event is ready or ctx ends, and takes the event over.
func (c *core) wait(ctx context.Context, event capi.Event) error {
	if ctx.Done() == nil {
		return c.api.EventFinish(event)
	}
	if err := ctx.Err(); err != nil {
		c.api.EventDestroy(event)
		return context.Cause(ctx)
	}
	ready := make(chan error, 1)
	if err := c.notify(event, func(err error) { ready <- err }); err != nil {
		return err
	}
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
