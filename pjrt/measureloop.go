package pjrt

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// LoopTime is the result of [LoadedExecutable.MeasureLoop]. FirstLaunch is the time until the first
// launch has returned. Total is the time until all runs are complete.
type LoopTime struct{ FirstLaunch, Total time.Duration }

// MeasureLoop runs the program n times in a loop written in C, waits for the last run, and returns
// the duration. n must be at least 1. Each result replaces the argument with the same index. The
// buffers in state are the arguments of the first run. They are donated, and contain the last
// results afterwards.
//
// The result is a lower bound for the duration of a training loop with this plugin. MeasureLoop
// cannot be interrupted; ctx is checked before it starts.
func (l *LoadedExecutable) MeasureLoop(ctx context.Context, state [][]*Buffer, n int) (LoopTime, error) {
	const op = "repeat"
	if l.loadedHandle == nil {
		return LoopTime{}, zeroValueError(op, "executable", "Compile")
	}
	if ctx.Err() != nil {
		return LoopTime{}, contextError(ctx, op)
	}
	if n < 1 {
		return LoopTime{}, &errkind.Fault{Op: "pjrt: " + op,
			Reason: fmt.Sprintf("n is %d, but must be at least 1", n), Class: errkind.ValueError}
	}
	if err := l.checkLists(state, state, ExecuteOptions{}); err != nil {
		return LoopTime{}, err
	}
	width := len(l.outputs)
	donate := make([]bool, width)
	for i := range donate {
		donate[i] = true
	}
	s, err := l.getLaunch(len(l.devices), width, width)
	if err != nil {
		return LoopTime{}, l.launchError(op, err)
	}
	defer l.putLaunch(s)
	if p := l.params.Load(); p != nil {
		s.params = *p
		for i, want := range s.params {
			if !want.equal(l.outputs[i]) {
				return LoopTime{}, &ArgumentError{IsResult: true, Device: -1, Index: -1,
					Reason: fmt.Sprintf("result %d is %v, but parameter %d, which it must replace, is %v", i,
						l.outputs[i], i, want)}
			}
		}
	}
	if taken, _, _, err := l.acquireArguments(s, state, nil, donate); err != nil {
		l.releaseArguments(state, donate, taken)
		return LoopTime{}, err
	}
	if len(l.devices) > 1 {
		l.core.launchMu.Lock()
		defer l.core.launchMu.Unlock()
	}
	launched, done, err := l.core.api.RunLoop(&s.Launch, n)
	for d, row := range state {
		for i, b := range row {
			live.Remove(live.Buffer, unsafe.Pointer(b.handle.c))
			b.handle.c = s.Args[d*width+i]
			live.Add(live.Buffer, unsafe.Pointer(b.handle.c))
			b.owner.Store(0)
			b.memory.Store(nil)
			if deleted, e := l.core.api.BufferIsDeleted(b.handle.c); e == nil && deleted {
				_ = b.handle.destroy()
				b.releaseExclusive(bufDonated)
				continue
			}
			b.releaseExclusive(0)
		}
	}
	return LoopTime{FirstLaunch: time.Duration(launched), Total: time.Duration(done)}, l.core.wrapError(op, err)
}
