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
	return c.await(pendingWait{event: event, done: done})
}

// await is notify of any wait.
func (c *core) await(of pendingWait) error {
	w, event := &c.waits, of.event
	w.mu.Lock()
	if err := w.start(c.api, c.ended); err != nil {
		w.mu.Unlock()
		c.api.EventDestroy(event)
		return err
	}
	w.next++
	slot := w.next
	live.Add(live.Wait, unsafe.Pointer(event))
	c.add(childWork, 1)
	w.pending[slot] = of
	w.mu.Unlock()
	err := c.api.EventNotify(event, w.pipe.fd, slot)
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

// ended says to who waits that the event came.
func (c *core) ended(of pendingWait, err error) {
	live.Remove(live.Wait, unsafe.Pointer(of.event))
	if of.done != nil {
		of.done(err)
	} else {
		of.ready <- err
	}
	c.release(childWork)
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
	ready := readies.Get().(chan error)
	if err := c.await(pendingWait{event: event, ready: ready}); err != nil {
		return err
	}
	select {
	case err := <-ready:
		readies.Put(ready)
		return err
	case <-ctx.Done(): // the outcome is still to come through the channel
		return context.Cause(ctx)
	}
}
