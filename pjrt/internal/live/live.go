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

// Add increments the number of open objects of a kind and calls Track for the new object.
func Add(k Kind, p unsafe.Pointer) {
	AddCount(k, 1)
	Track(k, p)
}

// Remove decrements the number of open objects of a kind and calls Untrack for the object.
func Remove(k Kind, p unsafe.Pointer) {
	AddCount(k, -1)
	Untrack(p)
}

// AddCount adds delta to the number of open objects of a kind, without recording or deleting
// creation stacks.
func AddCount(k Kind, delta int) {
	if delta != 0 {
		counts[k].Add(int64(delta))
	}
}

// IsRecording reports whether creation stacks are recorded.
func IsRecording() bool { return recording.Load() }

// Track stores the current stack as the creation stack of an object, if recording is enabled.
func Track(k Kind, p unsafe.Pointer) {
	if recording.Load() {
		mu.Lock()
		stacks[p] = creationRecord{k, string(debug.Stack())}
		mu.Unlock()
	}
}

// Untrack deletes the creation stack of an object.
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

// Counts returns, by kind, the number of open objects and the number of objects that the garbage
// collector released.
func Counts() (alive, collected map[string]int) {
	alive, collected = map[string]int{}, map[string]int{}
	for k := range numKinds {
		alive[k.String()] = int(counts[k].Load())
		collected[k.String()] = int(reclaimed[k].Load())
	}
	return alive, collected
}

// SetRecording enables or disables the recording of creation stacks. Disabling it deletes all stacks.
func SetRecording(on bool) {
	recording.Store(on)
	mu.Lock()
	defer mu.Unlock()
	if !on {
		clear(stacks)
		reclaimedRecords = nil
	}
}

// CreationStacks returns the recorded creation stacks of one kind of object: of the open objects
// and of the objects that the garbage collector released.
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
