package hangtest

import (
	"testing"
	"time"
)

// limit is much longer than the time to read a small file on a loaded machine.
const limit = 20 * time.Second

// Within runs f in another goroutine and fails the test immediately if f does not return within 20
// seconds. A failed require assertion in f ends only f, not the test function.
func Within(t testing.TB, f func()) {
	t.Helper()
	if !returns(f, limit) {
		t.Fatal("it hangs")
	}
}

// returns reports whether f returns within limit.
func returns(f func(), limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}
