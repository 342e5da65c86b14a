package pjrt

import (
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// executeInPlace is the step loop's case of execute: every argument is donated, and every result
// takes the place of the argument of its number. It answers false, with nothing done, if the call
// is another or a wrong one.
//
// It does nothing that execute would not do, but in one short function: between two launches the
// plugin fills the caches with its own code, and then each line that a launch touches costs a miss,
// which the time of a small program shows.
func (l *LoadedExecutable) executeInPlace(s *launch, args, results [][]*Buffer, o *ExecuteOptions) (bool, error) {
	width := len(o.Donate)
	if !s.loops || width != s.args || len(args) != len(l.devices) || len(results) != len(args) || o.LaunchID != 0 {
		return false, nil
	}
	n := 0
	for d, row := range args {
		into, device := results[d], l.devices[d]
		if len(row) != width || len(into) != width {
			l.returnArguments(args, o.Donate, n)
			return false, nil
		}
		for i, b := range row {
			if into[i] != b || !o.Donate[i] || b == nil || b.core != l.core || !b.word.CompareAndSwap(0, bufExclusive) {
				l.returnArguments(args, o.Donate, n)
				return false, nil
			}
			s.Args[n] = b.h.c
			n++
			if b.shape.Load() != s.params[i] || b.dev.Load() != device {
				l.returnArguments(args, o.Donate, n)
				return false, nil
			}
		}
	}
	if len(args) > 1 {
		l.core.launch.Lock()
	}
	failed := s.ExecuteInPlace()
	if len(args) > 1 {
		l.core.launch.Unlock()
	}
	if failed {
		err := l.core.api.LaunchError(&s.Launch)
		s.inPlace = n
		l.refused(s, args, results, o.Donate)
		return true, l.core.wrap("execute", err)
	}
	n = 0
	recording := live.Recording()
	for _, row := range args {
		for _, b := range row {
			if recording {
				live.Untrack(unsafe.Pointer(b.h.c))
				live.Track(live.Buffer, unsafe.Pointer(s.Args[n]))
			}
			b.h.c = s.Args[n]
			n++
			if b.mem.Load() != nil {
				b.mem.Store(nil) // a result is in the device's own memory, whatever the argument was in
			}
			if !b.word.CompareAndSwap(bufExclusive, 0) {
				b.settle(0)
			}
		}
	}
	return true, nil
}
