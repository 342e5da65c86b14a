package pjrt

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

const closedRefs = math.MinInt64 / 2

// guard counts the users of a C object that Close may end while calls are under way: the object
// goes when the last user does.
type guard struct {
	n atomic.Int64 // users, or closedRefs and up once closing
}

// enter counts a user; it fails once close was called.
func (g *guard) enter() bool {
	for {
		n := g.n.Load()
		if n < 0 {
			return false
		}
		if g.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave answers true if the caller is the last user of a closed object and has to end it.
func (g *guard) leave() bool { return g.n.Add(-1) == closedRefs }

// close answers first for the call that closed, and last if that caller has to end the object at
// once.
func (g *guard) close() (first, last bool) {
	for {
		n := g.n.Load()
		if n < 0 {
			return false, false
		}
		if g.n.CompareAndSwap(n, n+closedRefs) {
			return true, n == 0
		}
	}
}

// handle is the inner half of an object that owns a C object, without a way back to it, so that the
// garbage collector can tell when the object was dropped without Close.
type handle struct {
	guard
	kind live.Kind
	path string       // the plugin's
	end  func() error // gives the C object back
	// mu is held by Close, whose first result is that of each later one.
	mu     sync.Mutex
	result error
}

// call runs f on the live C object.
func (h *handle) call(op string, f func() error) error {
	if !h.enter() {
		return fail(op, h.kind.String(), ErrClosed)
	}
	defer h.exit()
	return wrap(op, h.path, f())
}

// exit leaves, and ends a closed object that nobody else uses.
func (h *handle) exit() {
	if h.leave() {
		_ = h.destroy()
	}
}

func (h *handle) destroy() error {
	live.Remove(h.kind, unsafe.Pointer(h))
	return h.end()
}

// shut closes the object, which goes with its last user.
func (h *handle) shut(op string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, last := h.close(); last {
		h.result = wrap(op, h.path, h.destroy())
	}
	return h.result
}

// reclaim ends an object that was dropped without Close.
func (h *handle) reclaim() {
	if first, last := h.close(); first {
		live.Reclaimed(h.kind, unsafe.Pointer(h))
		if last {
			_ = h.destroy()
		}
	}
}
