// Package live counts the C objects that the binding holds, so that a test can prove that none is
// left behind. Counting costs an atomic addition per object; stacks are recorded only while a test
// asks for them.
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

// The kinds.
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

// The counters are of the process, as the objects are.
var (
	counts    [kinds]atomic.Int64
	reclaimed [kinds]atomic.Int64
	recording atomic.Bool
	mu        sync.Mutex
	stacks    = map[unsafe.Pointer]record{}
	lost      []record // what the garbage collector ended
)

type record struct {
	kind  Kind
	stack string
}

// Add counts a new object.
func Add(k Kind, p unsafe.Pointer) {
	Count(k, 1)
	Track(k, p)
}

// Remove counts an object as gone.
func Remove(k Kind, p unsafe.Pointer) {
	Count(k, -1)
	Untrack(p)
}

// Count counts several objects as new, or as gone if delta is negative. With [Track] and [Untrack]
// it is what Add and Remove do.
func Count(k Kind, delta int) {
	if delta != 0 {
		counts[k].Add(int64(delta))
	}
}

// Recording reports whether Track and Untrack have an effect.
func Recording() bool { return recording.Load() }

// Track records where an object was made, while a test records.
func Track(k Kind, p unsafe.Pointer) {
	if recording.Load() {
		mu.Lock()
		stacks[p] = record{k, string(debug.Stack())}
		mu.Unlock()
	}
}

// Untrack forgets where an object was made.
func Untrack(p unsafe.Pointer) {
	if recording.Load() {
		mu.Lock()
		delete(stacks, p)
		mu.Unlock()
	}
}

// Reclaimed notes that the garbage collector, not Close, ended an object.
func Reclaimed(k Kind, p unsafe.Pointer) {
	reclaimed[k].Add(1)
	if recording.Load() {
		mu.Lock()
		lost = append(lost, record{k, stacks[p].stack})
		mu.Unlock()
	}
}

// Counts returns how many objects are open, by kind, and how many the garbage collector had to end.
func Counts() (alive, collected map[string]int) {
	alive, collected = map[string]int{}, map[string]int{}
	for k := range kinds {
		alive[k.String()] = int(counts[k].Load())
		collected[k.String()] = int(reclaimed[k].Load())
	}
	return alive, collected
}

// Record switches the recording of creation stacks on or off; off forgets them.
func Record(on bool) {
	recording.Store(on)
	mu.Lock()
	defer mu.Unlock()
	if !on {
		clear(stacks)
		lost = nil
	}
}

// Report lists the creation stacks of objects of a kind that are still alive or were reclaimed, while
// recording.
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
