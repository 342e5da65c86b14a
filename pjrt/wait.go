package pjrt

import (
	"context"
	"encoding/binary"
	"io"
	"os"
	"sync"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// waits turns event callbacks into channel sends. The callback runs on threads of the plugin, and
// possibly inside one of our own calls, so it only writes a message to a pipe; one goroutine per
// client reads the pipe. The goroutine starts with the first wait that a context can end.
type waits struct {
	mu      sync.Mutex
	r, w    *os.File
	fd      uintptr
	next    uint64
	pending map[uint64]func(error)
	stopped chan struct{}
}

func (w *waits) start(api *capi.API) error {
	if w.r != nil {
		return nil
	}
	r, wr, err := os.Pipe()
	if err != nil {
		return fail("wait", "", err)
	}
	w.r, w.w, w.fd = r, wr, wr.Fd()
	w.pending = map[uint64]func(error){}
	w.stopped = make(chan struct{})
	go w.read(api, r, w.stopped)
	return nil
}

func (w *waits) read(api *capi.API, r io.Reader, stopped chan<- struct{}) {
	defer close(stopped)
	var message [16]byte
	for {
		if _, err := io.ReadFull(r, message[:]); err != nil {
			return // the pipe was closed: no wait is left
		}
		slot := binary.NativeEndian.Uint64(message[:8])
		err := api.ErrorFrom(binary.NativeEndian.Uint64(message[8:]))
		w.mu.Lock()
		done := w.pending[slot]
		delete(w.pending, slot)
		w.mu.Unlock()
		if done != nil {
			done(err)
		}
	}
}

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

// close stops the reading goroutine; nothing may be outstanding.
func (w *waits) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.w != nil {
		w.w.Close()
		<-w.stopped
		w.r.Close()
	}
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
