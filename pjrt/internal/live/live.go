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
	numKinds
)

var kindNames = [numKinds]string{"client", "buffer", "executable", "topology", "launch", "wait"}

// String returns the kind's name.
func (k Kind) String() string { return kindNames[k] }

// The counters are global because all clients of the process share the C library.
var (
	counts           [numKinds]atomic.Int64
	reclaimed        [numKinds]atomic.Int64
	recording        atomic.Bool
	mu               sync.Mutex
	stacks           = map[unsafe.Pointer]creationRecord{}
	reclaimedRecords []creationRecord // objects that the garbage collector released
)

type creationRecord struct {
	kind  Kind
	stack string
}

// Add counts and tracks a new object.
func Add(k Kind, p unsafe.Pointer) {
	AddCount(k, 1)
	Track(k, p)
}

// Remove stops counting and tracking an object.
func Remove(k Kind, p unsafe.Pointer) {
	AddCount(k, -1)
	Untrack(p)
}

// AddCount changes the number of objects by delta. Add and Remove also call Track or Untrack.
func AddCount(k Kind, delta int) {
	if delta != 0 {
		counts[k].Add(int64(delta))
	}
}

// IsRecording reports whether Track and Untrack have an effect.
func IsRecording() bool { return recording.Load() }

// Track stores the creation stack of an object if recording is enabled.
func Track(k Kind, p unsafe.Pointer) {
	if recording.Load() {
		mu.Lock()
		stacks[p] = creationRecord{k, string(debug.Stack())}
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

// MarkReclaimed records that the garbage collector released an object that was not closed.
func MarkReclaimed(k Kind, p unsafe.Pointer) {
	reclaimed[k].Add(1)
	if recording.Load() {
		mu.Lock()
		reclaimedRecords = append(reclaimedRecords, creationRecord{k, stacks[p].stack})
		mu.Unlock()
	}
}

// Counts returns, for each kind, the number of open objects and the number of objects that the
// garbage collector released.
func Counts() (alive, collected map[string]int) {
	alive, collected = map[string]int{}, map[string]int{}
	for k := range numKinds {
		alive[k.String()] = int(counts[k].Load())
		collected[k.String()] = int(reclaimed[k].Load())
	}
	return alive, collected
}

// SetRecording enables or disables the recording of creation stacks. Disabling deletes all stacks.
func SetRecording(on bool) {
	recording.Store(on)
	mu.Lock()
	defer mu.Unlock()
	if !on {
		clear(stacks)
		reclaimedRecords = nil
	}
}

// CreationStacks returns the creation stacks of the recorded objects of a kind that are open or
// were released by the garbage collector.
func CreationStacks(kind string) string {
	mu.Lock()
	defer mu.Unlock()
	var all []string
	list := func(r creationRecord, what string) {
		if r.kind.String() == kind {
			all = append(all, fmt.Sprintf("%v %s, created at:\n%s", r.kind, what, r.stack))
		}
	}
	for _, r := range stacks {
		list(r, "still open")
	}
	slices.Sort(all)
	for _, r := range reclaimedRecords {
		list(r, "reclaimed by the garbage collector")
	}
	return strings.Join(all, "\n\n")
}
