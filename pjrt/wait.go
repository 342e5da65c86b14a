package pjrt

import (
	"context"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// notify calls done once with the outcome of the event, and destroys the event. done runs in the
// goroutine that reads the pipe of the events and must not block. The caller must have acquired the
// client. The caller's acquisition ensures that the client is not destroyed before done has
// returned.
func (c *clientHandle) notify(event capi.Event, done func(error)) error {
	return c.startWait(pendingWait{event: event, done: done})
}

// startWait registers a wait for an event and returns immediately. It destroys the event.
func (c *clientHandle) startWait(wait pendingWait) error {
	w, event := &c.events, wait.event
	w.mu.Lock()
	if err := w.open(c.api, c.deliverResult); err != nil {
		w.mu.Unlock()
		c.api.EventDestroy(event)
		return err
	}
	w.nextSlot++
	slot := w.nextSlot
	live.Add(live.Wait, unsafe.Pointer(event))
	c.addDependents(dependentWork, 1)
	w.pending[slot] = wait
	w.mu.Unlock()
	err := c.api.EventNotify(event, w.pipe.writeFD, slot)
	if err != nil {
		w.mu.Lock()
		delete(w.pending, slot)
		w.mu.Unlock()
		live.Remove(live.Wait, unsafe.Pointer(event))
		c.release(dependentWork)
	}
	c.api.EventDestroy(event)
	return err
}

// deliverResult passes the outcome of an event to the function or channel of the wait.
func (c *clientHandle) deliverResult(wait pendingWait, err error) {
	live.Remove(live.Wait, unsafe.Pointer(wait.event))
	if wait.done != nil {
		wait.done(err)
	} else {
		wait.ready <- err
	}
	c.release(dependentWork)
}

// awaitEvent blocks until the event is ready or ctx ends. It destroys the event.
func (c *clientHandle) awaitEvent(ctx context.Context, event capi.Event) error {
	if ctx.Done() == nil {
		return c.api.EventFinish(event)
	}
	if err := ctx.Err(); err != nil {
		c.api.EventDestroy(event)
		return context.Cause(ctx)
	}
	ready := readyChannels.Get().(chan error)
	if err := c.startWait(pendingWait{event: event, ready: ready}); err != nil {
		return err
	}
	select {
	case err := <-ready:
		readyChannels.Put(ready)
		return err
	case <-ctx.Done(): // ready cannot be reused, because the outcome will still be sent to it
		return context.Cause(ctx)
	}
}
