package pjrt

import (
	"encoding/binary"
	"io"
	"os"
	"sync"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// eventPipe turns event callbacks into channel sends. The callback runs on threads of the plugin,
// and possibly inside one of our own calls, so it only writes a message to a pipe; one goroutine
// per client reads the pipe. The goroutine starts with the first wait that a context can end.
type eventPipe struct {
	mu      sync.Mutex
	r, w    *os.File
	fd      uintptr
	next    uint64
	pending map[uint64]func(error)
	stopped chan struct{}
}

func (w *eventPipe) start(api *capi.API) error {
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

func (w *eventPipe) read(api *capi.API, r io.Reader, stopped chan<- struct{}) {
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

// close stops the reading goroutine; nothing may be outstanding.
func (w *eventPipe) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.w != nil {
		w.w.Close()
		<-w.stopped
		w.r.Close()
	}
}
