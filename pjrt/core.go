package pjrt

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// dependentKind is a kind of object or work that keeps a client open, called a dependent.
type dependentKind int

const (
	dependentBuffer dependentKind = iota
	dependentExecutable
	dependentTopology
	dependentCall // a call of a method of the client or its objects
	dependentWork // work that runs in the plugin without a caller: a compilation, or a wait for an event
	numDependentKinds
)

// clientHandle owns the C client of a Client. The objects of the client refer to the handle. It has
// no pointer to the Client, so that the garbage collector can find out that the Client is
// unreachable.
type clientHandle struct {
	api    *capi.API
	path   string
	client capi.Client

	// refs counts the Client and its dependents. It is closedRefs or less once the C client is
	// destroyed.
	refs       atomic.Int64
	dependents [numDependentKinds]atomic.Int64
	// closing is set if Close returned while work was still running. The C client is then destroyed
	// when the work ends.
	closing atomic.Bool

	// launchMu is locked while a program is enqueued on several devices, so that all devices receive
	// the launches of this client in the same order. Otherwise two collectives could deadlock.
	launchMu sync.Mutex

	events eventPipe

	// keyValues serves the key-value store, or is nil.
	keyValues *keyValueServer

	// lastHostShape is the shape of the last copy from the host.
	lastHostShape atomic.Pointer[shape]

	// memories are the client's memories by handle. They are not modified after NewClient.
	memories map[capi.Memory]*Memory
}

// acquire adds a dependent. It returns ErrClosed if the client is closed.
func (c *clientHandle) acquire(kind dependentKind) error {
	if c == nil {
		return ErrClosed // the client is a zero value
	}
	for {
		n := c.refs.Load()
		if n <= 0 || c.closing.Load() {
			return errClientClosed
		}
		if c.refs.CompareAndSwap(n, n+1) {
			c.dependents[kind].Add(1)
			return nil
		}
	}
}

// addDependents changes the number of dependents by delta. The caller must have acquired the
// client.
func (c *clientHandle) addDependents(kind dependentKind, delta int) {
	if delta != 0 {
		c.dependents[kind].Add(int64(delta))
		c.refs.Add(int64(delta))
	}
}

// release removes a dependent. The last release destroys a client that is unreachable, or that was
// closed while work was running.
func (c *clientHandle) release(kind dependentKind) {
	c.unref() // first, because Close expects one reference when there are no dependents
	c.dependents[kind].Add(-1)
}

func (c *clientHandle) unref() {
	if c.refs.Add(-1) == 0 && c.refs.CompareAndSwap(0, closedRefs) {
		// destroy runs in a new goroutine because it may wait for the calling goroutine.
		go func() { _ = c.destroy() }()
	}
}

// close destroys the client if it has no dependents.
func (c *clientHandle) close() error {
	if !c.refs.CompareAndSwap(1, closedRefs) {
		return c.inUseError("close client")
	}
	return c.destroy()
}

// isIdle reports whether no object of the client is open and no call is running. It runs the
// garbage collector before it returns false, because unreachable objects count until their cleanup
// has run.
func (c *clientHandle) isIdle() bool {
	open := func() bool {
		for k := dependentBuffer; k <= dependentCall; k++ {
			if c.dependents[k].Load() > 0 {
				return true
			}
		}
		return false
	}
	if !open() {
		return true
	}
	collectGarbage()
	// Cleanups run concurrently: others may end after the one that collect waits for.
	for range 20 {
		if !open() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// collectGarbage runs the garbage collector and waits, for one second at most, for a cleanup to
// run.
func collectGarbage() {
	ran := make(chan struct{})
	runtime.AddCleanup(new(*clientHandle), func(ran chan struct{}) { close(ran) }, ran)
	runtime.GC()
	select {
	case <-ran:
	case <-time.After(time.Second):
	}
}

// closeGrace is the time for which Close waits for running work that has no caller.
const closeGrace = time.Second

// waitForWork waits, for closeGrace at most, until the plugin has no running work. It reports
// whether all work has ended.
func (c *clientHandle) waitForWork() bool {
	for end := time.Now().Add(closeGrace); c.dependents[dependentWork].Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// closeWhenIdle closes the client as soon as its running work has ended.
func (c *clientHandle) closeWhenIdle() {
	c.closing.Store(true)
	c.unref()
}

func (c *clientHandle) destroy() error {
	c.events.close()
	live.Remove(live.Client, unsafe.Pointer(c.client))
	err := c.api.ClientDestroy(c.client)
	c.keyValues.close()
	return c.wrapError("close client", err)
}

func (c *clientHandle) inUseError(op string) error {
	return &InUseError{Op: op, Buffers: int(c.dependents[dependentBuffer].Load()),
		Executables: int(c.dependents[dependentExecutable].Load()),
		Topologies:  int(c.dependents[dependentTopology].Load()), Calls: int(c.dependents[dependentCall].Load())}
}

func (c *clientHandle) wrapError(op string, err error) error { // c may be nil if err is nil
	if err == nil {
		return nil
	}
	return wrapError(op, c.path, err)
}
