package pjrt

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// RepeatTime is the duration of a [LoadedExecutable.Repeat]: Launched until the first launch has
// returned, and Done until all runs are complete.
type RepeatTime struct{ Launched, Done time.Duration }

// MeasureLoop runs the program n times in a loop written in C, waits for the last run, and returns the
// duration. n must be at least 1. Each result replaces the argument with the same number. All
// buffers of state are donated and contain the last results afterwards.
//
// MeasureLoop measures the minimum cost of a step loop with this plugin, as a reference for other loops.
// It cannot be interrupted; ctx is checked before it starts.
func (l *LoadedExecutable) MeasureLoop(ctx context.Context, state [][]*Buffer, n int) (RepeatTime, error) {
	const op = "repeat"
	if l.loadedHandle == nil {
		return RepeatTime{}, zeroValueError(op, "executable", "Compile")
	}
	if ctx.Err() != nil {
		return RepeatTime{}, contextError(ctx, op)
	}
	if n < 1 {
		return RepeatTime{}, &errkind.Fault{Op: "pjrt: " + op,
			Reason: fmt.Sprintf("n is %d, but must be at least 1", n), Class: errkind.ValueError}
	}
	if err := l.checkLists(state, state, ExecuteOptions{}); err != nil {
		return RepeatTime{}, err
	}
	width := len(l.outputs)
	donate := make([]bool, width)
	for i := range donate {
		donate[i] = true
	}
	s, err := l.getLaunch(len(l.devices), width, width)
	if err != nil {
		return RepeatTime{}, l.launchError(op, err)
	}
	defer l.putLaunch(s)
	if p := l.params.Load(); p != nil {
		s.params = *p
		for i, want := range s.params {
			if !want.equal(l.outputs[i]) {
				return RepeatTime{}, &ArgumentError{Result: true, Device: -1, Index: -1,
					Reason: fmt.Sprintf("result %d is %v, but parameter %d, which it must replace, is %v", i,
						l.outputs[i], i, want)}
			}
		}
	}
	if taken, _, _, err := l.acquireArguments(s, state, nil, donate); err != nil {
		l.releaseArguments(state, donate, taken)
		return RepeatTime{}, err
	}
	if len(l.devices) > 1 {
		l.core.launch.Lock()
		defer l.core.launch.Unlock()
	}
	launched, done, err := l.core.api.Floor(&s.Launch, n)
	for d, row := range state {
		for i, b := range row {
			live.Remove(live.Buffer, unsafe.Pointer(b.handle.c))
			b.handle.c = s.Args[d*width+i]
			live.Add(live.Buffer, unsafe.Pointer(b.handle.c))
			b.owner.Store(0)
			b.memory.Store(nil)
			if gone, e := l.core.api.BufferIsDeleted(b.handle.c); e == nil && gone {
				_ = b.handle.destroy()
				b.releaseExclusive(bufDonated)
				continue
			}
			b.releaseExclusive(0)
		}
	}
	return RepeatTime{Launched: time.Duration(launched), Done: time.Duration(done)}, l.core.wrap(op, err)
}
