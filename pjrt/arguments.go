package pjrt

import (
	"fmt"
)

// This file acquires the buffers of a launch, so that no other call changes them, and releases them
// when the launch was enqueued or has failed.

// acquireArguments acquires every argument buffer: donated buffers for exclusive use, the others
// for shared use. It stores in s the handles of all arguments, the handles of the donated
// arguments, and the indices of the parameters that are not donated.
//
// n is the number of acquired buffers, which the caller must release after an error. numNonDonated
// counts the parameters that are not donated, and numDonated the donated handles.
func (l *LoadedExecutable) acquireArguments(s *launchState, args, results [][]*Buffer,
	donate []bool) (n, numNonDonated, numDonated int, err error) {
	s.numInPlace = 0
	params := s.params
	for d, row := range args {
		device := l.devices[d]
		var dst []*Buffer
		if results != nil {
			dst = results[d]
		}
		for i, b := range row {
			if b == nil || b.core != l.core {
				return n, 0, 0, foreignBufferError(b, false, d, i)
			}
			if donate != nil && donate[i] {
				if err := b.acquireExclusive(); err != nil {
					return n, 0, 0, acquireError(args, donate, d, i, err)
				}
				if i < len(dst) && dst[i] == b {
					s.numInPlace++
				} else {
					b.owner.Store(s.id) // a result of this launch may reuse the buffer
				}
				s.Donated[numDonated] = b.handle.c
				numDonated++
			} else {
				if err := b.acquire(); err != nil {
					return n, 0, 0, acquireError(args, donate, d, i, err)
				}
				if d == 0 {
					s.NonDonated[numNonDonated] = int64(i)
					numNonDonated++
				}
			}
			s.Args[n] = b.handle.c
			n++
			got := b.shape.Load()
			if b.device.Load() != device || params != nil && params[i] != got && !params[i].accepts(got) {
				return n, 0, 0, l.mismatchError(params, d, i, b)
			}
		}
	}
	return n, numNonDonated, numDonated, nil
}

// foreignBufferError returns the error for a buffer that is nil or belongs to another client.
func foreignBufferError(b *Buffer, result bool, device, index int) error {
	reason := "it is nil"
	if b != nil {
		reason = "it belongs to another client"
	}
	return &ArgumentError{IsResult: result, Device: device, Index: index, Reason: reason}
}

// mismatchError returns the error for an argument that is on the wrong device or has the wrong shape.
func (l *LoadedExecutable) mismatchError(params []*shape, d, i int, b *Buffer) error {
	e := &ArgumentError{Device: d, Index: i}
	if got, want := b.device.Load(), l.devices[d]; got != want {
		e.Reason = fmt.Sprintf("it is on device %d, but this position of the launch is device %d", got.ID(), want.ID())
		e.Hint = "copy it with CopyToDevice"
	} else {
		e.Reason = fmt.Sprintf("it is %v, but the program expects %v", b.shape.Load(), params[i])
	}
	return e
}

// acquireError returns the error for argument i of device d, whose buffer could not be acquired
// because of err. If err is ErrBusy, acquireError checks whether another argument is the same
// buffer.
func acquireError(args [][]*Buffer, donate []bool, d, i int, err error) error {
	b := args[d][i]
	e := &ArgumentError{Device: d, Index: i, Err: err}
	if err != ErrBusy {
		return e
	}
	for dd, row := range args {
		for ii, other := range row {
			if other == b && (dd != d || ii != i) {
				e.Reason, e.Hint = fmt.Sprintf("it is donated, but it is also argument %d of device %d", ii, dd),
					"copy it, or do not donate it"
				if donate[i] && donate[ii] {
					e.Reason, e.Hint = fmt.Sprintf("it is donated twice: it is also argument %d of device %d", ii, dd),
						"copy it"
				}
				return e
			}
		}
	}
	e.Reason = "it cannot be donated while another call uses it"
	return e
}

// releaseArguments releases the first n arguments that acquireArguments acquired.
func (l *LoadedExecutable) releaseArguments(args [][]*Buffer, donate []bool, n int) {
	for _, row := range args {
		for i, b := range row {
			if n == 0 {
				return
			}
			n--
			if donate != nil && donate[i] {
				b.owner.Store(0)
				b.releaseExclusive(0)
			} else {
				b.release()
			}
		}
	}
}

// acquireResults acquires the result buffers that Execute will refill. In-place results, which are
// stored in the buffer of the donated argument with the same index, are skipped, because these
// buffers are already acquired as arguments. acquireResults stores the state of each result slot in
// s.
func (l *LoadedExecutable) acquireResults(s *launchState, args, results [][]*Buffer, donate []bool) error {
	for k := range s.slotStates {
		s.slotStates[k] = slotUnused
	}
	for d, row := range results {
		for j, b := range row {
			k := d*len(row) + j
			if b == nil {
				s.slotStates[k] = slotNew
				continue
			}
			if isInPlaceResult(args[d], donate, j, b) {
				s.slotStates[k] = slotInPlace
				continue
			}
			if b.core != l.core {
				return foreignBufferError(b, true, d, j)
			}
			if b.owner.CompareAndSwap(s.id, s.id|1) {
				s.slotStates[k] = slotAlias
				continue
			}
			state, err := b.acquireForRefill()
			if err != nil {
				e := &ArgumentError{IsResult: true, Device: d, Index: j, Reason: "it is live", Err: err,
					Hint: "close it, donate it in this call, or pass nil"}
				if countOccurrences(results, b) > 1 {
					e.Reason, e.Hint = "it is passed for two results",
						"pass a different buffer, or nil, for each result"
				}
				return e
			}
			b.owner.Store(s.id | 1)
			s.slotStates[k] = state
		}
	}
	return nil
}

// isInPlaceResult reports whether b, the buffer for result j, is also the donated argument j.
func isInPlaceResult(args []*Buffer, donate []bool, j int, b *Buffer) bool {
	return j < len(args) && donate != nil && donate[j] && args[j] == b
}

func countOccurrences(rows [][]*Buffer, b *Buffer) (n int) {
	for _, row := range rows {
		for _, other := range row {
			if other == b {
				n++
			}
		}
	}
	return n
}

// releaseResults undoes acquireResults, including an acquireResults that stopped at an error.
func (l *LoadedExecutable) releaseResults(s *launchState, results [][]*Buffer) {
	for d, row := range results {
		for j, b := range row {
			switch state := s.slotStates[d*len(row)+j]; state {
			case slotNew, slotUnused, slotInPlace:
			case slotAlias:
				b.owner.Store(s.id)
			default:
				b.owner.Store(0)
				b.releaseExclusive(state)
			}
		}
	}
}

// checkLists checks the numbers of devices, arguments and results of an Execute call. It does not
// allocate memory unless it returns an error.
func (l *LoadedExecutable) checkLists(args, results [][]*Buffer, opts ExecuteOptions) error {
	if len(l.devices) == 0 {
		return &ArgumentError{Device: -1, Index: -1, Reason: "the program uses no device of this process"}
	}
	if len(args) != len(l.devices) {
		return &ArgumentError{Device: -1, Index: -1,
			Reason: fmt.Sprintf("%d lists for %d devices", len(args), len(l.devices))}
	}
	if len(results) != len(l.devices) {
		return &ArgumentError{IsResult: true, Device: -1, Index: -1,
			Reason: fmt.Sprintf("%d lists for %d devices", len(results), len(l.devices))}
	}
	want := len(args[0])
	if p := l.params.Load(); p != nil {
		want = len(*p)
	}
	for d := range args {
		if len(args[d]) != want {
			return &ArgumentError{Device: d, Index: -1,
				Reason: fmt.Sprintf("%d buffers, but the program has %d parameters", len(args[d]), want)}
		}
		if len(results[d]) != len(l.outputs) {
			return &ArgumentError{IsResult: true, Device: d, Index: -1,
				Reason: fmt.Sprintf("%d entries, but the program has %d results", len(results[d]), len(l.outputs))}
		}
	}
	if opts.Donate != nil && len(opts.Donate) != want {
		return &ArgumentError{Device: -1, Index: -1,
			Reason: fmt.Sprintf("Donate has %d entries, but the program has %d parameters", len(opts.Donate), want)}
	}
	if int(int32(opts.LaunchID)) != opts.LaunchID {
		return &ArgumentError{Device: -1, Index: -1,
			Reason: fmt.Sprintf("LaunchID %d does not fit into 32 bits", opts.LaunchID)}
	}
	return nil
}

// releaseAfterFailure releases the buffers of a launch that the plugin rejected. If the plugin
// consumed a donated buffer although it rejected the launch, the buffer is marked as donated.
func (l *LoadedExecutable) releaseAfterFailure(s *launchState, args, results [][]*Buffer, donate []bool) {
	if s.numInPlace < len(s.slotStates) {
		l.releaseResults(s, results)
	}
	for _, row := range args {
		for i, b := range row {
			if donate == nil || !donate[i] {
				b.release()
				continue
			}
			b.owner.Store(0)
			if deleted, err := l.core.api.BufferIsDeleted(b.handle.c); err == nil && deleted {
				_ = b.handle.destroy()
				b.releaseExclusive(bufDonated)
			} else {
				b.releaseExclusive(0)
			}
		}
	}
}
