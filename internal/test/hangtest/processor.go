package hangtest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Processor runs f and returns the processor time that this process used during the call, in all
// goroutines. The result does not include waiting. Unlike wall-clock time, it hardly depends on the
// load of other processes.
func Processor(t testing.TB, f func()) time.Duration {
	t.Helper()
	start := used(t)
	f()
	return used(t) - start
}

func used(t testing.TB) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
