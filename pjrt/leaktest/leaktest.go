package leaktest

import (
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// TB is the part of testing.TB that Check uses.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
}

// Check fails the test at its end, after the cleanups that are registered later, if more plugin
// objects are open than now, or if the garbage collector ended any. Meanwhile it records where
// objects are made. It is for tests that do not run in parallel with others that use plugins.
func Check(t TB) {
	t.Helper()
	before, collected := live.Counts()
	live.Record(true)
	t.Cleanup(func() {
		defer live.Record(false)
		// Two cycles, so that cleanups queued by the first have run.
		runtime.GC()
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
		after, reclaimed := live.Counts()
		// Work that a Close left behind ends by itself.
		for end := time.Now().Add(leftBehind); more(after, before) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			after, reclaimed = live.Counts()
		}
		for _, kind := range slices.Sorted(maps.Keys(after)) {
			// Launch scratch lives and goes with its executable.
			if n := after[kind] - before[kind]; n > 0 {
				t.Errorf("pjrt/leaktest: %d %s objects left open\n%s", n, kind, live.Report(kind))
			}
			if n := reclaimed[kind] - collected[kind]; n > 0 {
				t.Errorf("pjrt/leaktest: %d %s objects ended by the garbage collector, not Close\n%s", n, kind, live.Report(kind))
			}
		}
	})
}

// leftBehind is how long Check waits for what is still open.
const leftBehind = 10 * time.Second

func more(after, before map[string]int) bool {
	for kind, n := range after {
		if n > before[kind] {
			return true
		}
	}
	return false
}

// Open returns how many plugin objects are open in the process, by kind.
func Open() map[string]int {
	alive, _ := live.Counts()
	return alive
}
