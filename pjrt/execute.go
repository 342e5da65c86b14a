package pjrt

import (
	"context"
	"fmt"
	"unsafe"

	"tpustrategy/pjrt/internal/live"
)

// ExecuteOptions configure one launch.
type ExecuteOptions struct {
	// Donate says for each parameter whether its buffers, on all devices, are
	// given to the program, which may put results in their memory; nil means
	// none. A donated buffer is no longer usable, and its Go object can take a
	// result.
	Donate []bool
	// LaunchID, if not 0, numbers the launch over all processes, for plugins
	// that check that processes launch in the same order.
	LaunchID int
}

// Execute enqueues one run of the program on its devices and returns without
// waiting for it; an error of the run itself comes out of [Buffer.Ready] and
// [Buffer.ToHost] of its results.
//
// args[d][i] is parameter i on launch device d (see AddressableDevices), of the
// type that one device takes. results[d][j] receives result j: a nil entry gets
// a new Buffer, the caller's to Close; a closed or donated Buffer, also one that
// this very call donates, is filled again. A live Buffer there is refused, so
// that nothing is lost silently. So a loop that donates its state and passes
// the same Go buffers as arguments and results allocates nothing.
//
// A wrong buffer gives an [*ArgumentError] and nothing is executed or donated.
// If the plugin refuses the launch, buffers that it took are donated and all
// others are as before. ctx is looked at once, before the launch. A launch that
// donates waits for the eighth before it, if that one still runs: plugins keep a
// donated buffer's handle busy until its run ends. Programs on
// more than one device are enqueued one at a time per client.
func (l *LoadedExecutable) Execute(ctx context.Context, args, results [][]*Buffer, o ExecuteOptions) error {
	if ctx.Err() != nil {
		return fmt.Errorf("pjrt: execute: %w", context.Cause(ctx))
	}
	if !l.enter() {
		return fmt.Errorf("pjrt: execute: executable: %w", ErrClosed)
	}
	err := l.execute(args, results, o)
	if l.leave() {
		_ = l.destroy()
	}
	return err
}

func (l *LoadedExecutable) execute(args, results [][]*Buffer, o ExecuteOptions) error {
	params, err := l.checkLists(args, results, o)
	if err != nil {
		return err
	}
	nargs := 0
	if len(args) > 0 {
		nargs = len(args[0])
	}
	s, err := l.getLaunch(len(l.devices), nargs, len(l.outputs))
	if err != nil {
		return err
	}
	defer l.putLaunch(s)

	for k := range s.taken {
		s.taken[k] = slotUnused
	}
	n, err := l.takeArguments(s, params, args, results, o.Donate)
	if err != nil {
		l.returnArguments(s, args, o.Donate, n)
		return err
	}
	if err := l.takeResults(s, results); err != nil {
		l.returnResults(s, results)
		l.returnArguments(s, args, o.Donate, n)
		return err
	}
	keep, drop := 0, 0
	for i := range nargs {
		if o.Donate == nil || !o.Donate[i] {
			s.Keep[keep] = int64(i)
			keep++
			continue
		}
		for d := range args {
			s.Drop[drop] = s.Args[d*nargs+i]
			drop++
		}
	}
	if len(l.devices) > 1 {
		l.core.launch.Lock()
	}
	err = l.core.api.Execute(s.Launch, keep, drop, o.LaunchID)
	if len(l.devices) > 1 {
		l.core.launch.Unlock()
	}
	if err != nil {
		l.refused(s, args, results, o.Donate)
		return l.core.wrap("execute", err)
	}
	if !l.checked.Load() {
		err = l.learn(s, args)
	}
	l.finish(s, args, results, o.Donate)
	return err
}

// checkLists checks the numbers of devices, arguments and results.
func (l *LoadedExecutable) checkLists(args, results [][]*Buffer, o ExecuteOptions) ([]*shape, error) {
	if len(l.devices) == 0 {
		return nil, &ArgumentError{Device: -1, Index: -1, Detail: "no device of this process takes part in the program"}
	}
	if int(int32(o.LaunchID)) != o.LaunchID {
		return nil, &ArgumentError{Device: -1, Index: -1, Detail: fmt.Sprintf("LaunchID %d is not a 32-bit number", o.LaunchID)}
	}
	if len(args) != len(l.devices) {
		return nil, &ArgumentError{Device: -1, Index: -1, Detail: fmt.Sprintf("%d lists for %d devices", len(args), len(l.devices))}
	}
	if len(results) != len(l.devices) {
		return nil, &ArgumentError{Result: true, Device: -1, Index: -1, Detail: fmt.Sprintf("%d lists for %d devices", len(results), len(l.devices))}
	}
	var params []*shape
	want := 0
	if p := l.params.Load(); p != nil {
		params, want = *p, len(*p)
	} else if len(args) > 0 {
		want = len(args[0])
	}
	for d := range args {
		if len(args[d]) != want {
			return nil, &ArgumentError{Device: d, Index: -1, Detail: fmt.Sprintf("%d buffers, the program takes %d", len(args[d]), want)}
		}
		if len(results[d]) != len(l.outputs) {
			return nil, &ArgumentError{Result: true, Device: d, Index: -1, Detail: fmt.Sprintf("%d entries, the program gives %d", len(results[d]), len(l.outputs))}
		}
	}
	if o.Donate != nil && len(o.Donate) != want {
		return nil, &ArgumentError{Device: -1, Index: -1, Detail: fmt.Sprintf("Donate has %d entries, the program takes %d arguments", len(o.Donate), want)}
	}
	return params, nil
}

// refused sorts out a launch that the plugin did not take: it may have taken
// some donated buffers all the same.
func (l *LoadedExecutable) refused(s *launch, args, results [][]*Buffer, donate []bool) {
	l.returnResults(s, results)
	for _, row := range args {
		for i, b := range row {
			if donate == nil || !donate[i] {
				b.release()
				continue
			}
			b.claim.Store(0)
			if gone, err := l.core.api.BufferIsDeleted(b.h.c); err == nil && gone {
				_ = b.h.destroy()
				b.settle(bufDonated)
			} else {
				b.settle(0)
			}
		}
	}
}

// finish hands out the results of a launch. Donated handles are already gone.
func (l *LoadedExecutable) finish(s *launch, args, results [][]*Buffer, donate []bool) {
	gone, filled, fresh := 0, 0, 0
	for d, row := range args {
		for i, b := range row {
			if donate == nil || !donate[i] {
				b.release()
				continue
			}
			live.Untrack(unsafe.Pointer(b.h.c))
			b.h.c = nil
			gone++
			if i < s.results && results[d][i] == b {
				continue
			}
			if b.claim.Load() == s.id { // no result takes its place
				b.claim.Store(0)
				b.settle(bufDonated)
			}
		}
	}
	for d, row := range results {
		for j, b := range row {
			h := s.Outs[d*len(row)+j]
			if b == nil {
				row[j] = newBuffer(l.core, h, l.outputs[j], l.devices[d], nil)
				fresh++
				continue
			}
			if s.taken[d*len(row)+j] != slotInPlace {
				b.claim.Store(0)
			}
			b.fill(h, l.outputs[j], l.devices[d], nil)
			filled++
		}
	}
	live.Count(live.Buffer, filled-gone)
	l.core.add(childBuffer, filled+fresh-gone)
}

// learn checks, once, that the plugin's results are of the types that it
// announced, as later checks rely on those, and keeps the parameters of a first
// call if nobody told them.
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
	if l.params.Load() == nil && len(args) > 0 {
		params := make([]*shape, len(args[0]))
		for i, b := range args[0] {
			params[i] = b.shape.Load()
		}
		l.params.CompareAndSwap(nil, &params)
	}
	l.checked.Store(true)
	return nil
}
