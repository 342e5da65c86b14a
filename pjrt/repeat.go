package pjrt

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// RepeatTime says how long a [LoadedExecutable.Repeat] took: Launched until its first launch had
// returned, and Done until all work was done.
type RepeatTime struct{ Launched, Done time.Duration }

// Repeat runs the program n times, at least once, in a loop written in C, waits for the last run,
// and returns how long that took. Each result takes the place of the argument of its number. All of
// state is donated and holds the last results afterwards. It is the least that a step loop over
// this plugin can cost, to compare other loops with. It cannot be interrupted: ctx is looked at before
// it starts.
func (l *LoadedExecutable) Repeat(ctx context.Context, state [][]*Buffer, n int) (RepeatTime, error) {
	const op = "repeat"
	if l.loadedHandle == nil {
		return RepeatTime{}, errNotMade(op, "executable", "Compile")
	}
	if ctx.Err() != nil {
		return RepeatTime{}, ended(ctx, op)
	}
	if n < 1 {
		return RepeatTime{}, &errkind.Fault{Op: "pjrt: " + op, Reason: fmt.Sprintf("%d runs", n), Hint: "one is the least", Class: errkind.ValueError}
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
		return RepeatTime{}, l.noLaunch(op, err)
	}
	defer l.putLaunch(s)
	if p := l.params.Load(); p != nil {
		s.params = *p
		for i, want := range s.params {
			if !want.equal(l.outputs[i]) {
				return RepeatTime{}, &ArgumentError{Result: true, Device: -1, Index: -1, Reason: fmt.Sprintf("result %d is %v, which cannot be argument %d again: %v", i, l.outputs[i], i, want)}
			}
		}
	}
	if taken, _, _, err := l.takeArguments(s, state, nil, donate); err != nil {
		l.returnArguments(state, donate, taken)
		return RepeatTime{}, err
	}
	if len(l.devices) > 1 {
		l.core.launch.Lock()
		defer l.core.launch.Unlock()
	}
	launched, done, err := l.core.api.Floor(&s.Launch, n)
	for d, row := range state {
		for i, b := range row {
			live.Remove(live.Buffer, unsafe.Pointer(b.h.c))
			b.h.c = s.Args[d*width+i]
			live.Add(live.Buffer, unsafe.Pointer(b.h.c))
			b.claim.Store(0)
			b.mem.Store(nil)
			if gone, e := l.core.api.BufferIsDeleted(b.h.c); e == nil && gone {
				_ = b.h.destroy()
				b.settle(bufDonated)
				continue
			}
			b.settle(0)
		}
	}
	return RepeatTime{Launched: time.Duration(launched), Done: time.Duration(done)}, l.core.wrap(op, err)
}
