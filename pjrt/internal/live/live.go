// Package live counts the C objects of package pjrt, so that tests can check that none is leaked.
// Counting costs one atomic addition per object. Creation stacks are recorded only during such
// tests.
package live

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Kind is a kind of C object.
type Kind int

// These are the kinds.
const (
	Client Kind = iota
	Buffer
	Executable
	Topology
	Launch
	Wait
	kinds
)

var names = [kinds]string{"client", "buffer", "executable", "topology", "launch", "wait"}

// String returns the kind's name.
func (k Kind) String() string { return names[k] }

// The counters are global because all clients of the process share the C library.
var (
	counts    [kinds]atomic.Int64
	reclaimed [kinds]atomic.Int64
	recording atomic.Bool
	mu        sync.Mutex
	stacks    = map[unsafe.Pointer]record{}
	lost      []record // objects that the garbage collector released
)

type record struct {
	kind  Kind
	stack string
}

// Add counts and tracks a new object.
func Add(k Kind, p unsafe.Pointer) {
	Count(k, 1)
	Track(k, p)
}

// Remove stops counting and tracking an object.
func Remove(k Kind, p unsafe.Pointer) {
	Count(k, -1)
	Untrack(p)
}

// Count changes the number of objects by delta. Add and Remove are Count with Track or Untrack.
func Count(k Kind, delta int) {
	if delta != 0 {
		counts[k].Add(int64(delta))
	}
}

// Recording reports whether Track and Untrack have an effect.
func Recording() bool { return recording.Load() }

// Track stores the creation stack of an object if recording is enabled.
func Track(k Kind, p unsafe.Pointer) {
	if recording.Load() {
		mu.Lock()
		stacks[p] = record{k, string(debug.Stack())}
		mu.Unlock()
	}
}

// Untrack removes the creation stack of an object.
func Untrack(p unsafe.Pointer) {
	if recording.Load() {
		mu.Lock()
		delete(stacks, p)
		mu.Unlock()
	}
}

// Reclaimed records that the garbage collector released an object that was not closed.
func Reclaimed(k Kind, p unsafe.Pointer) {
	reclaimed[k].Add(1)
	if recording.Load() {
		mu.Lock()
		lost = append(lost, record{k, stacks[p].stack})
		mu.Unlock()
	}
}

// Counts returns, for each kind, the number of open objects and the number of objects that the
// garbage collector released.
func Counts() (alive, collected map[string]int) {
	alive, collected = map[string]int{}, map[string]int{}
	for k := range kinds {
		alive[k.String()] = int(counts[k].Load())
		collected[k.String()] = int(reclaimed[k].Load())
	}
	return alive, collected
}

// Record enables or disables the recording of creation stacks. Disabling deletes all stacks.
func Record(on bool) {
	recording.Store(on)
	mu.Lock()
	defer mu.Unlock()
	if !on {
		clear(stacks)
		lost = nil
	}
}

// Report returns the creation stacks of the recorded objects of a kind that are open or were
// released by the garbage collector.
func Report(kind string) string {
	mu.Lock()
	defer mu.Unlock()
	var all []string
	list := func(r record, what string) {
		if r.kind.String() == kind {
			all = append(all, fmt.Sprintf("%v %s, created at:\n%s", r.kind, what, r.stack))
		}
	}
	for _, r := range stacks {
		list(r, "still open")
	}
	slices.Sort(all)
	for _, r := range lost {
		list(r, "reclaimed by the garbage collector")
	}
	return strings.Join(all, "\n\n")
}
