package pjrt

import (
	"fmt"
)

// The buffers of a launch: entered before it, so that no other call disturbs them, and left after
// it, or given back if it comes to nothing.

// takeArguments enters every argument, donated ones alone, and answers how many it entered; one
// that is wrong is not among them. It fills the launch's lists: the handles, those that it donates,
// and the parameters to keep.
func (l *LoadedExecutable) takeArguments(s *launch, args, results [][]*Buffer, donate []bool) (n, keep, drop int, err error) {
	s.inPlace = 0
	params := s.params
	for d, row := range args {
		device := l.devices[d]
		var into []*Buffer
		if results != nil {
			into = results[d]
		}
		for i, b := range row {
			if b == nil || b.core != l.core {
				return n, 0, 0, foreign(b, false, d, i)
			}
			if donate != nil && donate[i] {
				if err := b.acquireAlone(); err != nil {
					return n, 0, 0, occupied(args, donate, d, i, err)
				}
				if i < len(into) && into[i] == b {
					s.inPlace++
				} else {
					b.claim.Store(s.id) // whichever result finds it may have its place
				}
				s.Drop[drop] = b.h.c
				drop++
			} else {
				if err := b.acquire(); err != nil {
					return n, 0, 0, occupied(args, donate, d, i, err)
				}
				if d == 0 {
					s.Keep[keep] = int64(i)
					keep++
				}
			}
			s.Args[n] = b.h.c
			n++
			have := b.shape.Load()
			if b.dev.Load() != device || params != nil && params[i] != have && !params[i].accepts(have) {
				return n, 0, 0, l.misfit(params, d, i, b)
			}
		}
	}
	return n, keep, drop, nil
}

// foreign is the error of a buffer that is no buffer of this client.
func foreign(b *Buffer, result bool, device, index int) error {
	reason := "it is nil"
	if b != nil {
		reason = "it belongs to another client"
	}
	return &ArgumentError{Result: result, Device: device, Index: index, Reason: reason}
}

// misfit is the error of an argument that was entered, but is on another device or of another type.
func (l *LoadedExecutable) misfit(params []*shape, d, i int, b *Buffer) error {
	e := &ArgumentError{Device: d, Index: i}
	if have, want := b.dev.Load(), l.devices[d]; have != want {
		e.Reason = fmt.Sprintf("it is on device %d, this launch position is device %d", have.ID(), want.ID())
		e.Hint = "copy it with CopyToDevice"
	} else {
		e.Reason = fmt.Sprintf("it is %v, the program takes %v", b.shape.Load(), params[i])
	}
	return e
}

// occupied says why argument i of device d could not be entered.
func occupied(args [][]*Buffer, donate []bool, d, i int, err error) error {
	b := args[d][i]
	e := &ArgumentError{Device: d, Index: i, Err: err}
	if err != ErrBusy {
		return e
	}
	for dd, row := range args {
		for ii, other := range row {
			if other == b && (dd != d || ii != i) {
				e.Reason, e.Hint = fmt.Sprintf("it is donated and also argument %d of device %d", ii, dd), "copy it, or do not donate it"
				if donate[i] && donate[ii] {
					e.Reason, e.Hint = fmt.Sprintf("it is donated twice, also as argument %d of device %d", ii, dd), "copy it"
				}
				return e
			}
		}
	}
	e.Reason = "another call is using it, so it cannot be donated now"
	return e
}

// returnArguments undoes the first n entries of takeArguments.
func (l *LoadedExecutable) returnArguments(args [][]*Buffer, donate []bool, n int) {
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

// takeResults enters the buffers that are to be filled again, except those that take the place of
// the argument of their number.
func (l *LoadedExecutable) takeResults(s *launch, args, results [][]*Buffer, donate []bool) error {
	for k := range s.taken {
		s.taken[k] = slotUnused
	}
	for d, row := range results {
		for j, b := range row {
			k := d*len(row) + j
			if b == nil {
				s.taken[k] = slotNew
				continue
			}
			if inPlace(args[d], donate, j, b) {
				s.taken[k] = slotInPlace
				continue
			}
			if b.core != l.core {
				return foreign(b, true, d, j)
			}
			if b.claim.CompareAndSwap(s.id, s.id|1) {
				s.taken[k] = slotAlias
				continue
			}
			state, err := b.acquireEmpty()
			if err != nil {
				e := &ArgumentError{Result: true, Device: d, Index: j, Reason: "it is live", Err: err, Hint: "close it, donate it in this call, or pass nil"}
				if occurrences(results, b) > 1 {
					e.Reason, e.Hint = "it is there twice", "give each result a buffer of its own, or nil"
				}
				return e
			}
			b.claim.Store(s.id | 1)
			s.taken[k] = state
		}
	}
	return nil
}

// inPlace says whether result j, b, takes the place of the argument of its number.
func inPlace(args []*Buffer, donate []bool, j int, b *Buffer) bool {
	return j < len(args) && donate != nil && donate[j] && args[j] == b
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

// checkLists says what is wrong with the numbers of devices, arguments and results of a call. It
// allocates nothing where they are right.
func (l *LoadedExecutable) checkLists(args, results [][]*Buffer, o ExecuteOptions) error {
	if len(l.devices) == 0 {
		return &ArgumentError{Device: -1, Index: -1, Reason: "no device of this process takes part in the program"}
	}
	if len(args) != len(l.devices) {
		return &ArgumentError{Device: -1, Index: -1, Reason: fmt.Sprintf("%d lists for %d devices", len(args), len(l.devices))}
	}
	if len(results) != len(l.devices) {
		return &ArgumentError{Result: true, Device: -1, Index: -1, Reason: fmt.Sprintf("%d lists for %d devices", len(results), len(l.devices))}
	}
	want := len(args[0])
	if p := l.params.Load(); p != nil {
		want = len(*p)
	}
	for d := range args {
		if len(args[d]) != want {
			return &ArgumentError{Device: d, Index: -1, Reason: fmt.Sprintf("%d buffers, the program takes %d", len(args[d]), want)}
		}
		if len(results[d]) != len(l.outputs) {
			return &ArgumentError{Result: true, Device: d, Index: -1, Reason: fmt.Sprintf("%d entries, the program gives %d", len(results[d]), len(l.outputs))}
		}
	}
	if o.Donate != nil && len(o.Donate) != want {
		return &ArgumentError{Device: -1, Index: -1, Reason: fmt.Sprintf("Donate has %d entries, the program takes %d arguments", len(o.Donate), want)}
	}
	if int(int32(o.LaunchID)) != o.LaunchID {
		return &ArgumentError{Device: -1, Index: -1, Reason: fmt.Sprintf("LaunchID %d is not a 32-bit number", o.LaunchID)}
	}
	return nil
}

// refused sorts out a launch that the plugin did not take: it may have taken some donated buffers
// all the same.
func (l *LoadedExecutable) refused(s *launch, args, results [][]*Buffer, donate []bool) {
	if s.inPlace < len(s.taken) {
		l.returnResults(s, results)
	}
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
