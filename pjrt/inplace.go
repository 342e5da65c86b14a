package pjrt

import (
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// executeInPlace is a fast path of Execute for training loops in which all arguments are donated
// and each result replaces the argument with the same index. For all other calls, including invalid
// ones, executeInPlace has no effect and returns false.
//
// The function duplicates code of execute because the plugin evicts the caches of the CPU between
// two launches. Short code causes fewer cache misses, which is measurable for small programs.
func (l *LoadedExecutable) executeInPlace(s *launchState, args, results [][]*Buffer, opts *ExecuteOptions) (bool,
	error) {
	width := len(opts.Donate)
	if !s.sameShapes || width != s.numArgs || len(args) != len(l.devices) || len(results) != len(args) ||
		opts.LaunchID != 0 {
		return false, nil
	}
	n := 0
	for d, row := range args {
		dst, device := results[d], l.devices[d]
		if len(row) != width || len(dst) != width {
			l.releaseArguments(args, opts.Donate, n)
			return false, nil
		}
		for i, b := range row {
			if dst[i] != b || !opts.Donate[i] || b == nil || b.core != l.core ||
				!b.status.CompareAndSwap(0, bufExclusive) {
				l.releaseArguments(args, opts.Donate, n)
				return false, nil
			}
			s.Args[n] = b.handle.c
			n++
			if b.shape.Load() != s.params[i] || b.device.Load() != device {
				l.releaseArguments(args, opts.Donate, n)
				return false, nil
			}
		}
	}
	if len(args) > 1 {
		l.core.launchMu.Lock()
	}
	failed := s.ExecuteInPlace()
	if len(args) > 1 {
		l.core.launchMu.Unlock()
	}
	if failed {
		err := l.core.api.LaunchError(&s.Launch)
		s.numInPlace = n
		l.releaseAfterFailure(s, args, results, opts.Donate)
		return true, l.core.wrapError("execute", err)
	}
	n = 0
	recording := live.IsRecording()
	for _, row := range args {
		for _, b := range row {
			if recording {
				live.Untrack(unsafe.Pointer(b.handle.c))
				live.Track(live.Buffer, unsafe.Pointer(s.Args[n]))
			}
			b.handle.c = s.Args[n]
			n++
			if b.memory.Load() != nil {
				b.memory.Store(nil) // a result is in the default memory of the device
			}
			if !b.status.CompareAndSwap(bufExclusive, 0) {
				b.releaseExclusive(0)
			}
		}
	}
	return true, nil
}
