package hangtest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Processor runs f and returns the time that this process took of all processors meanwhile, in f
// and in other goroutines. Another process does not add to it, as it does to the time of a clock:
// what a test says of it holds on a machine that does other work too. Waiting does not count.
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
