package pjrt

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// Execute enqueues one run of the program on its devices and returns without waiting for it. An
// error of the run itself comes out of [Buffer.Ready] and [Buffer.ToHost] of its results.
//
// args[d][i] is parameter i on launch device d (see AddressableDevices), of the type that one
// device takes. results[d][j] receives result j: a nil entry gets a new Buffer, the caller's to
// Close; a closed or donated Buffer, also one that this very call donates, is filled again. A live
// Buffer there is refused, so that nothing is lost silently. So a loop that donates its state and
// passes the same Go buffers as arguments and results allocates nothing.
//
// A wrong buffer gives an [*ArgumentError], and nothing is executed or donated. If the plugin
// refuses the launch, buffers that it took are donated and all others are as before. ctx is looked
// at once, before the launch. A launch waits for the eighth launch of this program before it, if
// that still runs: plugins keep a donated buffer's handle busy until its run ends, and have queues
// of a fixed length. Programs on more than one device are enqueued one at a time per client.
func (l *LoadedExecutable) Execute(ctx context.Context, args, results [][]*Buffer, o ExecuteOptions) error {
	if ctx.Err() != nil {
		return ended(ctx, "execute")
	}
	if l.loadedHandle == nil {
		return errNotMade("execute", "executable", "Compile")
	}
	if l.firstState.CompareAndSwap(firstIdle, firstTaken) {
		s := l.first
		done, err := l.executeInPlace(s, args, results, &o)
		l.putLaunch(s)
		if done {
			return err
		}
	}
	return l.executeAny(args, results, o)
}

// executeAny is Execute of any arguments and results.
func (l *LoadedExecutable) executeAny(args, results [][]*Buffer, o ExecuteOptions) error {
	if err := l.checkLists(args, results, o); err != nil {
		return err
	}
	if len(l.devices) > 1 {
		// Taken first, so that all goroutines use one launch, with one ring of eight.
		l.core.launch.Lock()
		defer l.core.launch.Unlock()
	}
	s, err := l.getLaunch(len(l.devices), len(args[0]), len(l.outputs))
	if err != nil {
		return l.noLaunch("execute", err)
	}
	err = l.execute(s, args, results, o)
	l.putLaunch(s)
	return err
}

func (l *LoadedExecutable) execute(s *launch, args, results [][]*Buffer, o ExecuteOptions) error {
	if s.params == nil {
		if p := l.params.Load(); p != nil {
			s.params = *p
		}
	}
	n, keep, drop, err := l.takeArguments(s, args, results, o.Donate)
	if err != nil {
		l.returnArguments(args, o.Donate, n)
		return err
	}
	if s.inPlace < len(s.taken) {
		if err := l.takeResults(s, args, results, o.Donate); err != nil {
			l.returnResults(s, results)
			l.returnArguments(args, o.Donate, n)
			return err
		}
	}
	err = l.core.api.Execute(&s.Launch, keep, drop, o.LaunchID)
	if err != nil {
		l.refused(s, args, results, o.Donate)
		return l.core.wrap("execute", err)
	}
	if !s.checked {
		err = l.learn(s, args)
	}
	l.leaveArguments(s, args, results, o.Donate)
	if s.inPlace < len(s.taken) {
		l.fillResults(s, results)
	}
	return err
}

// leaveArguments ends a launch's use of its arguments. Donated handles are already gone; a result
// that takes the place of the argument of its number is put there.
func (l *LoadedExecutable) leaveArguments(s *launch, args, results [][]*Buffer, donate []bool) {
	gone := 0
	for d, row := range args {
		into := results[d]
		for i, b := range row {
			switch {
			case donate == nil || !donate[i]:
				b.release()
			case i < len(into) && into[i] == b:
				live.Untrack(unsafe.Pointer(b.h.c))
				b.fill(s.Outs[d*s.results+i], l.outputs[i], l.devices[d], nil)
			default:
				live.Untrack(unsafe.Pointer(b.h.c))
				b.h.c = nil
				gone++
				if b.claim.Load() == s.id { // no result takes its place
					b.claim.Store(0)
					b.settle(bufDonated)
				}
			}
		}
	}
	if gone > 0 {
		live.Count(live.Buffer, -gone)
		l.core.add(childBuffer, -gone)
	}
}

// fillResults hands out the other results.
func (l *LoadedExecutable) fillResults(s *launch, results [][]*Buffer) {
	filled := 0
	for d, row := range results {
		for j, b := range row {
			k := d*len(row) + j
			switch s.taken[k] {
			case slotInPlace:
			case slotNew:
				l.core.add(childBuffer, 1)
				row[j] = newBuffer(l.core, s.Outs[k], l.outputs[j], l.devices[d], nil)
			default:
				b.claim.Store(0)
				b.fill(s.Outs[k], l.outputs[j], l.devices[d], nil)
				filled++
			}
		}
	}
	if filled > 0 {
		live.Count(live.Buffer, filled)
		l.core.add(childBuffer, filled)
	}
}

// learn checks, once for a launch, that the plugin's results are of the types that it announced, as
// later checks rely on those, and keeps the parameters of a first call if nobody told them.
func (l *LoadedExecutable) learn(s *launch, args [][]*Buffer) error {
	for j, want := range l.outputs {
		dtype, err := l.core.api.BufferType(s.Outs[j])
		if err != nil {
			return l.core.wrap("result type", err)
		}
		dims, err := l.core.api.BufferDims(s.Outs[j])
		if err != nil {
			return l.core.wrap("result dimensions", err)
		}
		if have := shapeOf64(DType(dtype), dims); !have.equal(want) {
			return &Error{Op: "execute", Code: Internal, Plugin: l.core.path,
				Msg: fmt.Sprintf("result %d is %v, the plugin announced %v: close the results", j, have, want)}
		}
	}
	if l.params.Load() == nil {
		params := make([]*shape, len(args[0]))
		for i, b := range args[0] {
			params[i] = b.shape.Load()
		}
		l.params.CompareAndSwap(nil, l.share(params))
	}
	s.params = *l.params.Load()
	s.checked = true
	// Only then the type of a buffer stays the same, object and all: see share.
	s.loops = len(s.params) > 0 && slices.Equal(s.params, l.outputs)
	return nil
}
