package leaktest

import (
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// TB contains the methods of testing.TB that [Check] uses.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
}

// Check makes the test fail if it does not close all objects of package pjrt that it creates, or if
// the garbage collector releases such an object. The check runs after the cleanups that the test
// registers later. The error contains the stack where the object was created. The test must not run
// in parallel with other tests that use plugins.
func Check(t TB) {
	t.Helper()
	before, collected := live.Counts()
	live.SetRecording(true)
	t.Cleanup(func() {
		defer live.SetRecording(false)
		// The cleanups of the first cycle have run after the second.
		runtime.GC()
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
		after, reclaimed := live.Counts()
		// Work that was running during a Close may still end.
		for end := time.Now().Add(waitLimit); hasMore(after, before) &&
			time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			after, reclaimed = live.Counts()
		}
		for _, kind := range slices.Sorted(maps.Keys(after)) {
			if n := after[kind] - before[kind]; n > 0 {
				t.Errorf("pjrt/leaktest: %d %s objects are still open\n%s", n, kind, live.CreationStacks(kind))
			}
			if n := reclaimed[kind] - collected[kind]; n > 0 {
				t.Errorf("pjrt/leaktest: %d %s objects were released by the garbage collector, not by Close\n%s", n,
					kind, live.CreationStacks(kind))
			}
		}
	})
}

// waitLimit is the time for which Check waits until objects are closed.
const waitLimit = 10 * time.Second

func hasMore(after, before map[string]int) bool {
	for kind, n := range after {
		if n > before[kind] {
			return true
		}
	}
	return false
}

// OpenObjects returns the number of open plugin objects of the process, by kind.
func OpenObjects() map[string]int {
	alive, _ := live.Counts()
	return alive
}
