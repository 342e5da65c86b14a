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

// dependentKind is a kind of dependent. Dependents are the objects and the running work that
// prevent a client from being destroyed.
type dependentKind int

const (
	dependentBuffer dependentKind = iota
	dependentExecutable
	dependentTopology
	dependentCall // a call of a method of the client or its objects
	dependentWork // work that runs in the plugin without a caller: a compilation, or a wait for an event
	numDependentKinds
)

// clientHandle owns the C client of a Client. The objects of the client refer to the handle. The handle
// does not refer to the Client, so that the garbage collector can detect that the Client is unreachable.
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

// acquire adds a dependent of the given kind, which keeps the client open. It returns ErrClosed if
// the client is closed.
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

// addDependents adds delta, which may be negative, to the number of dependents of a kind. The
// caller must hold a dependent of the client.
func (c *clientHandle) addDependents(kind dependentKind, delta int) {
	if delta != 0 {
		c.dependents[kind].Add(int64(delta))
		c.refs.Add(int64(delta))
	}
}

// release removes a dependent. If it was the last one, and the client is unreachable or was closed
// while work was running, release destroys the client.
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

// close destroys the client. It returns an error if the client has dependents.
func (c *clientHandle) close() error {
	if !c.refs.CompareAndSwap(1, closedRefs) {
		return c.inUseError("close client")
	}
	return c.destroy()
}

// isIdle reports whether no object of the client is open and no call is running. Unreachable
// objects count until the garbage collector has run their cleanup, so isIdle runs the garbage
// collector before it returns false.
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
	// Cleanups run concurrently: others may end after the one that collectGarbage waits for.
	for range 20 {
		if !open() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// collectGarbage runs the garbage collector and waits until a cleanup has run, for at most one second.
func collectGarbage() {
	ran := make(chan struct{})
	runtime.AddCleanup(new(*clientHandle), func(ran chan struct{}) { close(ran) }, ran)
	runtime.GC()
	select {
	case <-ran:
	case <-time.After(time.Second):
	}
}

// closeGrace is the time for which Close waits for work whose caller has returned.
const closeGrace = time.Second

// waitForWork waits until the plugin has no running work, for at most closeGrace. It reports
// whether all work has completed.
func (c *clientHandle) waitForWork() bool {
	for end := time.Now().Add(closeGrace); c.dependents[dependentWork].Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// closeWhenIdle marks the client as closing. The client is destroyed when its running work completes.
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
