package pjrt

import (
	"encoding/binary"
	"sync"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// eventPipe turns event callbacks into channel sends: the callback writes a message to a pipe, of which
// each client has one. It is opened by the first wait that a context can end.
type eventPipe struct {
	mu      sync.Mutex
	pipe    *pipe
	next    uint64
	pending map[uint64]pendingWait
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

func (w *eventPipe) start(api *capi.API, ended func(pendingWait, error)) (err error) {
	if w.pipe != nil {
		return nil
	}
	w.pending = map[uint64]pendingWait{}
	w.pipe, err = openPipe(16, func(message []byte) {
		slot := binary.NativeEndian.Uint64(message[:8])
		err := api.ErrorFrom(binary.NativeEndian.Uint64(message[8:]))
		w.mu.Lock()
		of, ok := w.pending[slot]
		delete(w.pending, slot)
		w.mu.Unlock()
		if ok {
			ended(of, err)
		}
	})
	if err != nil {
		return fail("wait", "", err)
	}
	return nil
}

// close stops the reading goroutine; nothing may be outstanding.
func (w *eventPipe) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pipe != nil {
		w.pipe.close()
	}
}
