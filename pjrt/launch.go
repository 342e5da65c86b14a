package pjrt

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// ExecuteOptions configures a call of [LoadedExecutable.Execute].
type ExecuteOptions struct {
	// Donate selects the parameters whose buffers are donated, on all devices. The program may
	// reuse the memory of donated buffers for its results. nil donates nothing. A donated Buffer
	// cannot be used until it is refilled.
	Donate []bool
	// LaunchID, if not 0, identifies the launch across all processes. Plugins can use it to check
	// that all processes launch in the same order.
	LaunchID int
}

// launchState contains the arrays and temporary data of an Execute call. Later calls of the same
// executable reuse it.
type launchState struct {
	capi.Launch
	id                  uint64 // even; id|1 marks a donated buffer that a result reuses
	numArgs, numResults int
	isPrimary           bool     // this is loadedHandle.primaryLaunch
	params              []*shape // shapes of the parameters; nil if unknown
	resultsChecked      bool     // checkResultTypes has succeeded
	sameShapes          bool     // checked, and each result has the shape of the parameter with the same index
	numInPlace          int      // number of results that replace the argument with the same index
	slotStates          []uint32 // per result slot: one of the constants below, or the status of the buffer to restore
}

// These are the states of a result slot, in addition to a status of the buffer.
const (
	slotNew     uint32 = 1 + iota // nil: Execute creates a Buffer
	slotAlias                     // a buffer that is donated in the same call
	slotInPlace                   // the argument with the same index
	slotUnused                    // not checked yet
)

var lastLaunchID atomic.Uint64

// These are the values of loadedHandle.primaryState.
const (
	primaryMissing uint32 = iota // there is no primary launch
	primaryIdle                  // available; it counts as a call of the executable
	primaryInUse
	primaryRetired // the executable is closed
)

// loadedHandle owns the C objects of a LoadedExecutable. The handle does not refer to the
// LoadedExecutable, so that the garbage collector can detect that the LoadedExecutable is unreachable.
type loadedHandle struct {
	refCount
	core       *clientHandle
	loaded     capi.Loaded
	executable *executableHandle

	// The call that changes primaryState from primaryIdle to primaryInUse may use primaryLaunch.
	// All other unused launch states are in freeLaunches.
	primaryState  atomic.Uint32
	primaryLaunch *launchState
	launchesMu    sync.Mutex
	freeLaunches  []*launchState // guarded by launchesMu
}

// destroy frees the C objects after the last call. The loaded program is freed only when no query
// of the Executable is running, because plugins read the program during such queries.
func (h *loadedHandle) destroy() error {
	for _, l := range h.freeLaunches {
		h.freeLaunch(l)
	}
	h.freeLaunches = nil
	if _, last := h.executable.close(); last {
		return h.executable.destroy()
	}
	return nil
}

func (h *loadedHandle) unload() error {
	live.Remove(live.Executable, unsafe.Pointer(h.loaded))
	err := h.core.api.LoadedDestroy(h.loaded)
	h.core.release(dependentExecutable)
	return err
}

// getLaunch registers a call of the executable and returns a launchState that no other call uses.
// The first launchState of an executable is its primary launchState. A loop that executes one step
// at a time always receives the primary launchState, which costs only one atomic operation.
func (h *loadedHandle) getLaunch(devices, args, results int) (*launchState, error) {
	if h.primaryState.CompareAndSwap(primaryIdle, primaryInUse) {
		if h.primaryLaunch.numArgs == args {
			return h.primaryLaunch, nil
		}
		h.demotePrimaryLaunch() // it was created when the number of parameters was unknown
	}
	return h.getSecondaryLaunch(devices, args, results)
}

// getSecondaryLaunch returns a launchState from freeLaunches, or a new one.
func (h *loadedHandle) getSecondaryLaunch(devices, args, results int) (*launchState, error) {
	if !h.acquire() {
		return nil, errExecutableClosed
	}
	h.launchesMu.Lock()
	defer h.launchesMu.Unlock()
	for n := len(h.freeLaunches); n > 0; n = len(h.freeLaunches) {
		l := h.freeLaunches[n-1]
		h.freeLaunches = h.freeLaunches[:n-1]
		if l.numArgs == args {
			return l, nil
		}
		h.freeLaunch(l)
	}
	c, err := h.core.api.NewLaunch(h.loaded, devices, args, results)
	if err != nil {
		h.release()
		return nil, err
	}
	l := &launchState{Launch: c, id: lastLaunchID.Add(1) << 1, numArgs: args, numResults: results,
		slotStates: make([]uint32, devices*results)}
	live.Add(live.Launch, l.Address())
	if h.primaryLaunch == nil {
		h.primaryLaunch, l.isPrimary = l, true
		h.primaryState.CompareAndSwap(primaryMissing, primaryInUse)
	}
	return l, nil
}

// launchError adds the operation to an error of getLaunch.
func (h *loadedHandle) launchError(op string, err error) error {
	if errors.Is(err, ErrClosed) {
		return opError(op, "", err)
	}
	return h.core.wrapError(op, err)
}

// putLaunch makes a launchState available to later calls, and unregisters the call that used it.
// The primary launchState, which is the first one of an executable, counts as a call even while it
// is unused, so that the next call needs no registration.
func (h *loadedHandle) putLaunch(l *launchState) {
	if !l.isPrimary || !h.primaryState.CompareAndSwap(primaryInUse, primaryIdle) {
		h.putSecondaryLaunch(l)
	}
}

// putSecondaryLaunch adds a launchState to freeLaunches and unregisters the call that used it.
func (h *loadedHandle) putSecondaryLaunch(l *launchState) {
	h.launchesMu.Lock()
	h.freeLaunches = append(h.freeLaunches, l)
	h.launchesMu.Unlock()
	h.release()
}

// demotePrimaryLaunch moves the primary launchState, which has the wrong number of arguments, to
// freeLaunches. Only the call that uses the primary launchState may call demotePrimaryLaunch.
func (h *loadedHandle) demotePrimaryLaunch() {
	l := h.primaryLaunch
	h.launchesMu.Lock()
	h.primaryLaunch, l.isPrimary = nil, false
	h.primaryState.CompareAndSwap(primaryInUse, primaryMissing)
	h.launchesMu.Unlock()
	h.putSecondaryLaunch(l)
}

// release unregisters a call. The last call of a closed executable destroys the executable.
func (h *loadedHandle) release() {
	if h.unref() {
		_ = h.destroy()
	}
}

// closeOnce closes the executable, and destroys it if no call is running. first is true for the
// first call.
func (h *loadedHandle) closeOnce() (first bool, err error) {
	first, last := h.close()
	if first && h.primaryState.Swap(primaryRetired) == primaryIdle {
		h.launchesMu.Lock()
		h.freeLaunches = append(h.freeLaunches, h.primaryLaunch)
		h.launchesMu.Unlock()
		last = h.unref()
	}
	if last {
		err = h.destroy()
	}
	return first, err
}

func (h *loadedHandle) freeLaunch(l *launchState) {
	live.Remove(live.Launch, l.Address())
	h.core.api.FreeLaunch(&l.Launch)
}
