package hangtest

import (
	"testing"
	"time"
)

// limit is long for what reads a small file, on any machine.
const limit = 20 * time.Second

// Within runs f, and fails the test at once if f does not return within 20 seconds. f runs on
// another goroutine: an assertion in it that stops the test ends f alone.
func Within(t testing.TB, f func()) {
	t.Helper()
	if !returns(f, limit) {
		t.Fatal("it hangs")
	}
}

// returns reports whether f returns within the limit.
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
