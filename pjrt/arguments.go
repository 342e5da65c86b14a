package pjrt

import "fmt"

// The buffers of a launch: entered before it, so that no other call disturbs them,
// and left after it, or given back if it comes to nothing.

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
