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
	pending map[uint64]pendingWait
	stopped chan struct{}
}

// pendingWait is an event that something waits for: a function, or who reads a channel. It is a value,
// so that a wait allocates nothing.
type pendingWait struct {
	event capi.Event
	done  func(error)
	ready chan error
}

// readies are channels with room for one error, which waits use again.
var readies = sync.Pool{New: func() any { return make(chan error, 1) }}

func (w *eventPipe) start(api *capi.API, ended func(pendingWait, error)) error {
	if w.r != nil {
		return nil
	}
	r, wr, err := os.Pipe()
	if err != nil {
		return fail("wait", "", err)
	}
	w.r, w.w, w.fd = r, wr, wr.Fd()
	w.pending = map[uint64]pendingWait{}
	w.stopped = make(chan struct{})
	go w.read(api, ended, r, w.stopped)
	return nil
}

func (w *eventPipe) read(api *capi.API, ended func(pendingWait, error), r io.Reader, stopped chan<- struct{}) {
	defer close(stopped)
	var message [16]byte
	for {
		if _, err := io.ReadFull(r, message[:]); err != nil {
			return // the pipe was closed: no wait is left
		}
		slot := binary.NativeEndian.Uint64(message[:8])
		err := api.ErrorFrom(binary.NativeEndian.Uint64(message[8:]))
		w.mu.Lock()
		of, ok := w.pending[slot]
		delete(w.pending, slot)
		w.mu.Unlock()
		if ok {
			ended(of, err)
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
