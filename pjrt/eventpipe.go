package pjrt

import (
	"encoding/binary"
	"sync"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// eventPipe delivers events of the plugin to Go. The C callback of an event writes a message to a
// pipe, and one goroutine per client reads the messages. The pipe is opened by the first wait whose
// context can end.
type eventPipe struct {
	mu       sync.Mutex
	pipe     *pipe
	nextSlot uint64
	pending  map[uint64]pendingWait
}

// pendingWait is a wait for an event. The outcome is passed to the function done if it is not nil,
// and otherwise sent to the channel ready.
type pendingWait struct {
	event capi.Event
	done  func(error)
	ready chan error
}

// readyChannels are channels with a buffer for one error, which waits reuse.
var readyChannels = sync.Pool{New: func() any { return make(chan error, 1) }}

// open opens the pipe unless it is already open. deliver is called with the outcome of each wait.
func (w *eventPipe) open(api *capi.API, deliver func(pendingWait, error)) (err error) {
	if w.pipe != nil {
		return nil
	}
	w.pending = map[uint64]pendingWait{}
	w.pipe, err = openPipe(16, func(message []byte) {
		slot := binary.NativeEndian.Uint64(message[:8])
		err := api.ReadError(binary.NativeEndian.Uint64(message[8:]))
		w.mu.Lock()
		wait, ok := w.pending[slot]
		delete(w.pending, slot)
		w.mu.Unlock()
		if ok {
			deliver(wait, err)
		}
	})
	if err != nil {
		return opError("wait", "", err)
	}
	return nil
}

// close stops the goroutine that reads the pipe. No wait may be pending.
func (w *eventPipe) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pipe != nil {
		w.pipe.close()
	}
}
