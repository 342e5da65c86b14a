package pjrt

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

const closedRefs = math.MinInt64 / 2

// refCount counts the calls that use a C object. close may be called while calls are running. In
// this case, the last call must destroy the object when it ends.
type refCount struct {
	n atomic.Int64 // number of calls, plus closedRefs after close
}

// acquire registers a call that uses the object. It returns false if the object is closed.
func (c *refCount) acquire() bool {
	for {
		n := c.n.Load()
		if n < 0 {
			return false
		}
		if c.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// unref unregisters a call. It returns true if the caller must destroy the object.
func (c *refCount) unref() bool { return c.n.Add(-1) == closedRefs }

// close prevents further calls. first is true for the first close. last is true if no call is
// running, so that the caller must destroy the object.
func (c *refCount) close() (first, last bool) {
	for {
		n := c.n.Load()
		if n < 0 {
			return false, false
		}
		if c.n.CompareAndSwap(n, n+closedRefs) {
			return true, n == 0
		}
	}
}

// handle owns the C object of a Go object. The handle does not refer to the Go object, so that the
// garbage collector can detect that the Go object is unreachable.
type handle struct {
	refCount
	kind live.Kind
	path string       // path of the plugin
	free func() error // frees the C object

	mu       sync.Mutex
	closeErr error // guarded by mu
}

// withHandle calls f while the object is acquired, so that the C object is not freed during the
// call.
func (h *handle) withHandle(op string, f func() error) error {
	if !h.acquire() {
		return opError(op, "", closedError(h.kind.String()))
	}
	defer h.release()
	return wrapError(op, h.path, f())
}

// release unregisters a call. The last call of a closed object destroys the object.
func (h *handle) release() {
	if h.unref() {
		_ = h.destroy()
	}
}

func (h *handle) destroy() error {
	live.Remove(h.kind, unsafe.Pointer(h))
	return h.free()
}

// closeOnce closes the object. Later calls return the result of the first call.
func (h *handle) closeOnce(op string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, last := h.close(); last {
		h.closeErr = wrapError(op, h.path, h.destroy())
	}
	return h.closeErr
}

// reclaim closes an object that became unreachable without Close.
func (h *handle) reclaim() {
	if first, last := h.close(); first {
		live.MarkReclaimed(h.kind, unsafe.Pointer(h))
		if last {
			_ = h.destroy()
		}
	}
}
