package pjrt

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"tpustrategy/pjrt/internal/capi"
	"tpustrategy/pjrt/internal/live"
)

// launch is the scratch of one Execute call.
type launch struct {
	*capi.Launch
	id            uint64 // even; id|1 marks a buffer that is argument and result
	args, results int
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

// getLaunch takes a launch that is not in use, or makes one. A loop that launches
// and launches finds its own in spare.
func (h *loadedHandle) getLaunch(devices, args, results int) (*launch, error) {
	if l := h.spare.Swap(nil); l != nil {
		if l.args == args {
			return l, nil
		}
		h.freeLaunch(l) // from before the number of parameters was known
	}
	h.launches.Lock()
	for n := len(h.free); n > 0; n = len(h.free) {
		l := h.free[n-1]
		h.free = h.free[:n-1]
		if l.args == args {
			h.launches.Unlock()
			return l, nil
		}
		h.freeLaunch(l)
	}
	h.launches.Unlock()
	c, err := h.core.api.NewLaunch(h.x, devices, args, results)
	if err != nil {
		return nil, fmt.Errorf("pjrt: execute: %w", err)
	}
	l := &launch{Launch: c, id: launchIDs.Add(1) << 1, args: args, results: results, taken: make([]uint32, devices*results)}
	live.Add(live.Launch, unsafe.Pointer(c))
	return l, nil
}

func (h *loadedHandle) putLaunch(l *launch) {
	if other := h.spare.Swap(l); other != nil {
		h.launches.Lock()
		h.free = append(h.free, other)
		h.launches.Unlock()
	}
}

func (h *loadedHandle) freeLaunch(l *launch) {
	live.Remove(live.Launch, unsafe.Pointer(l.Launch))
	h.core.api.FreeLaunch(l.Launch)
}
