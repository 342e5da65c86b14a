package pjrt

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// ExecuteOptions configure one launch.
type ExecuteOptions struct {
	// Donate selects the parameters whose buffers are donated, on all devices. The program may
	// reuse the memory of donated buffers for its results. nil donates nothing. A donated Buffer
	// cannot be used until it is refilled.
	Donate []bool
	// LaunchID, if not 0, identifies the launch across all processes. Plugins can use it to check
	// that all processes launch in the same order.
	LaunchID int
}

// launch is the working memory of one Execute call. Calls reuse it.
type launch struct {
	capi.Launch
	id            uint64 // even; id|1 marks a donated buffer that a result reuses
	args, results int
	first         bool     // this is loadedHandle.first
	params        []*shape // shapes of the parameters; nil if unknown
	checked       bool     // checkResultTypes has succeeded
	sameShapes    bool     // checked, and each result has the shape of the parameter with the same number
	inPlace       int      // number of results that replace the argument with the same number
	slots         []uint32 // per result slot: one of the constants below, or the status of the buffer to restore
}

// These are the states of a result slot, in addition to a status of the buffer.
const (
	slotNew     uint32 = 1 + iota // nil: Execute creates a Buffer
	slotAlias                     // a buffer that is donated in the same call
	slotInPlace                   // the argument with the same number
	slotUnused                    // not checked yet
)

var launchIDs atomic.Uint64

// These are the values of loadedHandle.firstState.
const (
	firstNone uint32 = iota // there is no first launch
	firstIdle               // available; it counts as a call of the executable
	firstTaken
	firstRetired // the executable is closed
)

// loadedHandle owns the C objects of a LoadedExecutable. It has no pointer to the LoadedExecutable,
// so that the garbage collector can find out that it is unreachable.
type loadedHandle struct {
	refCount
	core *core
	x    capi.Loaded
	exec *executableHandle

	// Calls reuse launches. A call that changes firstState from firstIdle to firstTaken uses first.
	// The other unused launches are in free.
	firstState atomic.Uint32
	first      *launch
	launches   sync.Mutex
	free       []*launch // guarded by launches
}

// destroy frees the C objects after the last call. The loaded program is freed only when no query
// of exec is running, because plugins read it during such queries.
func (h *loadedHandle) destroy() error {
	for _, l := range h.free {
		h.freeLaunch(l)
	}
	h.free = nil
	if _, last := h.exec.close(); last {
		return h.exec.destroy()
	}
	return nil
}

// unload frees the loaded program.
func (h *loadedHandle) unload() error {
	live.Remove(live.Executable, unsafe.Pointer(h.x))
	err := h.core.api.LoadedDestroy(h.x)
	h.core.release(childExecutable)
	return err
}

// getLaunch returns an unused launch, or a new one, and registers a call of the executable. A loop
// always gets the first launch, which needs only one atomic operation.
func (h *loadedHandle) getLaunch(devices, args, results int) (*launch, error) {
	if h.firstState.CompareAndSwap(firstIdle, firstTaken) {
		if h.first.args == args {
			return h.first, nil
		}
		h.removeFirst() // it was created when the number of parameters was unknown
	}
	return h.otherLaunch(devices, args, results)
}

// otherLaunch returns a launch from free, or a new one.
func (h *loadedHandle) otherLaunch(devices, args, results int) (*launch, error) {
	if !h.acquire() {
		return nil, ErrClosed
	}
	h.launches.Lock()
	defer h.launches.Unlock()
	for n := len(h.free); n > 0; n = len(h.free) {
		l := h.free[n-1]
		h.free = h.free[:n-1]
		if l.args == args {
			return l, nil
		}
		h.freeLaunch(l)
	}
	c, err := h.core.api.NewLaunch(h.x, devices, args, results)
	if err != nil {
		h.release()
		return nil, err
	}
	l := &launch{Launch: c, id: launchIDs.Add(1) << 1, args: args, results: results,
		slots: make([]uint32, devices*results)}
	live.Add(live.Launch, l.Address())
	if h.first == nil {
		h.first, l.first = l, true
		h.firstState.CompareAndSwap(firstNone, firstTaken)
	}
	return l, nil
}

// launchError adds the operation to an error of getLaunch.
func (h *loadedHandle) launchError(op string, err error) error {
	if errors.Is(err, ErrClosed) {
		return opError(op, "executable", err)
	}
	return h.core.wrap(op, err)
}

// putLaunch ends the use of a launch. The first launch continues to count as a call of the
// executable.
func (h *loadedHandle) putLaunch(l *launch) {
	if !l.first || !h.firstState.CompareAndSwap(firstTaken, firstIdle) {
		h.storeLaunch(l)
	}
}

// storeLaunch adds a launch to free.
func (h *loadedHandle) storeLaunch(l *launch) {
	h.launches.Lock()
	h.free = append(h.free, l)
	h.launches.Unlock()
	h.release()
}

// removeFirst moves the first launch, which the caller uses, to free.
func (h *loadedHandle) removeFirst() {
	l := h.first
	h.launches.Lock()
	h.first, l.first = nil, false
	h.firstState.CompareAndSwap(firstTaken, firstNone)
	h.launches.Unlock()
	h.storeLaunch(l)
}

// release removes a call, and destroys a closed executable after its last call.
func (h *loadedHandle) release() {
	if h.drop() {
		_ = h.destroy()
	}
}

// closeOnce closes the executable, and destroys it if no call is running. first is true for the first
// call.
func (h *loadedHandle) closeOnce() (first bool, err error) {
	first, last := h.close()
	if first && h.firstState.Swap(firstRetired) == firstIdle {
		h.launches.Lock()
		h.free = append(h.free, h.first)
		h.launches.Unlock()
		last = h.drop()
	}
	if last {
		err = h.destroy()
	}
	return first, err
}

func (h *loadedHandle) freeLaunch(l *launch) {
	live.Remove(live.Launch, l.Address())
	h.core.api.FreeLaunch(&l.Launch)
}
