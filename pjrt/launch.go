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
	// Donate says for each parameter whether its buffers, on all devices, are given to the program,
	// which may put results in their memory; nil donates none. A donated buffer is no longer
	// usable, and its Go object can take a result.
	Donate []bool
	// LaunchID, if it is not 0, numbers the launch over all processes, for plugins that check that
	// processes launch in the same order.
	LaunchID int
}

// launch is the scratch of one Execute call.
type launch struct {
	capi.Launch
	id            uint64 // even; id|1 marks a buffer that is argument and result
	args, results int
	first         bool     // the executable's first; see loadedHandle
	params        []*shape // nil until they are known
	checked       bool     // the results of an earlier call were of the announced types
	loops         bool     // checked, and each result is of the type of the parameter of its number
	inPlace       int      // results that take the place of the argument of their number
	taken         []uint32 // per result slot: the state to restore, or one of below
}

// What a result slot holds, where not a state to restore.
const (
	slotNew     uint32 = 1 + iota // nil: gets a new Buffer
	slotAlias                     // a buffer donated in the same call
	slotInPlace                   // one that is the argument of the same number
	slotUnused                    // not looked at yet
)

// launchIDs numbers launches, so that a buffer can tell whose it is.
var launchIDs atomic.Uint64

// The state of an executable's first launch.
const (
	firstNone uint32 = iota // there is none yet
	firstIdle               // ready to be taken; it counts as a user of the executable
	firstTaken
	firstRetired // the executable is closed
)

// loadedHandle is the inner half, without a way back to the LoadedExecutable.
type loadedHandle struct {
	guard
	core *core
	x    capi.Loaded
	exec *executableHandle

	// Launches are kept for the next call. The first belongs to who takes it by firstState; free
	// holds the others that no call uses.
	firstState atomic.Uint32
	first      *launch
	launches   sync.Mutex
	free       []*launch // guarded by launches
}

// destroy ends the C objects once no call uses them. Those that ask the program about itself use
// both: plugins look into the loaded program then.
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

// unload is the last part of destroy.
func (h *loadedHandle) unload() error {
	live.Remove(live.Executable, unsafe.Pointer(h.x))
	err := h.core.api.LoadedDestroy(h.x)
	h.core.release(childExecutable)
	return err
}

// getLaunch takes a launch that is not in use, or makes one, and enters the executable. A loop that
// launches and launches takes the first again and again, which is all that such a call has to do:
// it is a user already.
func (h *loadedHandle) getLaunch(devices, args, results int) (*launch, error) {
	if h.firstState.CompareAndSwap(firstIdle, firstTaken) {
		if h.first.args == args {
			return h.first, nil
		}
		h.dismiss() // it is from before the number of parameters was known
	}
	return h.anotherLaunch(devices, args, results)
}

func (h *loadedHandle) anotherLaunch(devices, args, results int) (*launch, error) {
	if !h.enter() {
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
		h.exit()
		return nil, err
	}
	l := &launch{Launch: c, id: launchIDs.Add(1) << 1, args: args, results: results, taken: make([]uint32, devices*results)}
	live.Add(live.Launch, l.Address())
	if h.first == nil {
		h.first, l.first = l, true
		h.firstState.CompareAndSwap(firstNone, firstTaken)
	}
	return l, nil
}

// noLaunch is the error of a call that got no launch.
func (h *loadedHandle) noLaunch(op string, err error) error {
	if errors.Is(err, ErrClosed) {
		return fail(op, "executable", err)
	}
	return h.core.wrap(op, err)
}

// putLaunch ends the use of a launch. The first stays a user of the executable.
func (h *loadedHandle) putLaunch(l *launch) {
	if !l.first || !h.firstState.CompareAndSwap(firstTaken, firstIdle) {
		h.park(l)
	}
}

// park keeps a launch for a call that comes while the first is taken.
func (h *loadedHandle) park(l *launch) {
	h.launches.Lock()
	h.free = append(h.free, l)
	h.launches.Unlock()
	h.exit()
}

// dismiss makes the first launch, which the caller has taken, one of the others.
func (h *loadedHandle) dismiss() {
	l := h.first
	h.launches.Lock()
	h.first, l.first = nil, false
	h.firstState.CompareAndSwap(firstTaken, firstNone)
	h.launches.Unlock()
	h.park(l)
}

// exit leaves, and ends a closed executable that nobody else uses.
func (h *loadedHandle) exit() {
	if h.leave() {
		_ = h.destroy()
	}
}

// end closes the executable, once; it goes with its last user.
func (h *loadedHandle) end() (first bool, err error) {
	first, last := h.close()
	if first && h.firstState.Swap(firstRetired) == firstIdle {
		h.launches.Lock()
		h.free = append(h.free, h.first)
		h.launches.Unlock()
		last = h.leave()
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
