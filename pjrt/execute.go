package pjrt

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"tpustrategy/pjrt/internal/capi"
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

// takeArguments enters every argument, donated ones alone, and answers how many
// it entered; one that is wrong is not among them.
func (l *LoadedExecutable) takeArguments(s *launch, params []*shape, args, results [][]*Buffer, donate []bool) (int, error) {
	n := 0
	for d, row := range args {
		for i, b := range row {
			if b == nil || b.core != l.core {
				detail := "it is nil"
				if b != nil {
					detail = "it belongs to another client"
				}
				return n, &ArgumentError{Device: d, Index: i, Detail: detail}
			}
			alone := donate != nil && donate[i]
			var err error
			if alone {
				if err = b.acquireAlone(); err == nil {
					s.donated(b, d, i, results)
				}
			} else {
				err = b.acquire()
			}
			if err != nil {
				return n, l.explain(s, args, donate, d, i, err)
			}
			n++
			if have := b.dev.Load(); have != l.devices[d] {
				return n, &ArgumentError{Device: d, Index: i, Detail: fmt.Sprintf("it is on device %d, this launch position is device %d; copy it with CopyToDevice", have.ID(), l.devices[d].ID())}
			}
			if params != nil && !params[i].equal(b.shape.Load()) {
				return n, &ArgumentError{Device: d, Index: i, Detail: fmt.Sprintf("it is %v, the program takes %v", b.shape.Load(), params[i])}
			}
			s.Args[d*len(row)+i] = b.h.c
		}
	}
	return n, nil
}

// donated notes that argument i of device d is the launch's alone, so that a result
// may take its place: the one of its number, or whichever finds the claim.
func (s *launch) donated(b *Buffer, d, i int, results [][]*Buffer) {
	if i < s.results && results != nil && results[d][i] == b {
		s.taken[d*s.results+i] = slotInPlace
		return
	}
	b.claim.Store(s.id)
}

// explain says why argument i of device d could not be entered.
func (l *LoadedExecutable) explain(s *launch, args [][]*Buffer, donate []bool, d, i int, err error) error {
	b := args[d][i]
	e := &ArgumentError{Device: d, Index: i, Err: err}
	if err != ErrBusy {
		return e
	}
	for dd, row := range args {
		for ii, other := range row {
			if other == b && (dd != d || ii != i) {
				both := donate[i] && donate[ii]
				e.Detail = fmt.Sprintf("it is donated and also argument %d of device %d; copy it, or do not donate it", ii, dd)
				if both {
					e.Detail = fmt.Sprintf("it is donated twice, also as argument %d of device %d", ii, dd)
				}
				return e
			}
		}
	}
	e.Detail = "another call is using it, so it cannot be donated now"
	return e
}

// returnArguments undoes the first n entries of takeArguments.
func (l *LoadedExecutable) returnArguments(s *launch, args [][]*Buffer, donate []bool, n int) {
	for _, row := range args {
		for i, b := range row {
			if n == 0 {
				return
			}
			n--
			if donate != nil && donate[i] {
				b.claim.Store(0)
				b.settle(0)
			} else {
				b.release()
			}
		}
	}
}

// takeResults enters the buffers that are to be filled again.
func (l *LoadedExecutable) takeResults(s *launch, results [][]*Buffer) error {
	for d, row := range results {
		for j, b := range row {
			k := d*len(row) + j
			if s.taken[k] == slotInPlace {
				continue
			}
			if b == nil {
				s.taken[k] = slotNew
				continue
			}
			if b.core != l.core {
				return &ArgumentError{Result: true, Device: d, Index: j, Detail: "it belongs to another client"}
			}
			if b.claim.CompareAndSwap(s.id, s.id|1) {
				s.taken[k] = slotAlias
				continue
			}
			state, err := b.acquireEmpty()
			if err != nil {
				detail := "it is live: close it, donate it in this call, or pass nil"
				if occurrences(results, b) > 1 {
					detail = "it is there twice"
				}
				return &ArgumentError{Result: true, Device: d, Index: j, Detail: detail, Err: err}
			}
			b.claim.Store(s.id | 1)
			s.taken[k] = state
		}
	}
	return nil
}

func occurrences(rows [][]*Buffer, b *Buffer) (n int) {
	for _, row := range rows {
		for _, other := range row {
			if other == b {
				n++
			}
		}
	}
	return n
}

// returnResults undoes takeResults, whole or in part.
func (l *LoadedExecutable) returnResults(s *launch, results [][]*Buffer) {
	for d, row := range results {
		for j, b := range row {
			switch state := s.taken[d*len(row)+j]; state {
			case slotNew, slotUnused, slotInPlace:
			case slotAlias:
				b.claim.Store(s.id)
			default:
				b.claim.Store(0)
				b.settle(state)
			}
		}
	}
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
