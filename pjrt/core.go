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

// childKind is a kind of object or work that keeps a client open.
type childKind int

const (
	childBuffer childKind = iota
	childExecutable
	childTopology
	childCall // a call of a method of the client or its objects
	childWork // work that runs in the plugin without a caller: a compilation, or a wait for an event
	childKinds
)

// core is the part of a Client that its children refer to. It has no pointer to the Client, so that
// the garbage collector can find out that the Client is unreachable.
type core struct {
	api  *capi.API
	path string
	c    capi.Client

	// refs counts the Client and its children. It is closedRefs or less once the C client is
	// destroyed.
	refs     atomic.Int64
	children [childKinds]atomic.Int64
	// closing is set if Close returned while work was still running. The C client is then destroyed
	// when the work ends.
	closing atomic.Bool

	// launch is locked while a program is enqueued on several devices, so that all devices receive
	// the launches of this client in the same order. Otherwise two collectives could deadlock.
	launch sync.Mutex

	waits eventPipe

	// values is the key-value store, or nil.
	values *keyValues

	// lastShape is the shape of the last copy from the host.
	lastShape atomic.Pointer[shape]

	// memories are the client's memories by handle. They are not modified after NewClient.
	memories map[capi.Memory]*Memory
}

// retain adds a child. It returns ErrClosed if the client is closed.
func (c *core) retain(k childKind) error {
	if c == nil {
		return ErrClosed // the client is a zero value
	}
	for {
		n := c.refs.Load()
		if n <= 0 || c.closing.Load() {
			return ErrClosed
		}
		if c.refs.CompareAndSwap(n, n+1) {
			c.children[k].Add(1)
			return nil
		}
	}
}

// add changes the number of children by delta. The caller must have retained the client.
func (c *core) add(k childKind, delta int) {
	if delta != 0 {
		c.children[k].Add(int64(delta))
		c.refs.Add(int64(delta))
	}
}

// release removes a child. The last release destroys a client that is unreachable, or that was
// closed while work was running.
func (c *core) release(k childKind) {
	c.drop() // first, because Close expects one reference when there are no children
	c.children[k].Add(-1)
}

func (c *core) drop() {
	if c.refs.Add(-1) == 0 && c.refs.CompareAndSwap(0, closedRefs) {
		// destroy runs in a new goroutine because it may wait for the calling goroutine.
		go func() { _ = c.destroy() }()
	}
}

// close destroys the client if it has no children.
func (c *core) close() error {
	if !c.refs.CompareAndSwap(1, closedRefs) {
		return c.openError("close client")
	}
	return c.destroy()
}

// isIdle reports whether no object of the client is open and no call is running. It runs the
// garbage collector before it returns false, because unreachable objects count until their cleanup
// has run.
func (c *core) isIdle() bool {
	open := func() bool {
		for k := childBuffer; k <= childCall; k++ {
			if c.children[k].Load() > 0 {
				return true
			}
		}
		return false
	}
	if !open() {
		return true
	}
	collect()
	// Cleanups run concurrently: others may end after the one that collect waits for.
	for range 20 {
		if !open() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// collect runs the garbage collector and waits, for one second at most, for a cleanup to run.
func collect() {
	ran := make(chan struct{})
	runtime.AddCleanup(new(*core), func(ran chan struct{}) { close(ran) }, ran)
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
func (c *core) waitForWork() bool {
	for end := time.Now().Add(closeGrace); c.children[childWork].Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// closeWhenIdle closes the client as soon as its running work has ended.
func (c *core) closeWhenIdle() {
	c.closing.Store(true)
	c.drop()
}

func (c *core) destroy() error {
	c.waits.close()
	live.Remove(live.Client, unsafe.Pointer(c.c))
	err := c.api.ClientDestroy(c.c)
	c.values.close()
	return c.wrap("close client", err)
}

func (c *core) openError(op string) error {
	return &OpenError{Op: op, Buffers: int(c.children[childBuffer].Load()),
		Executables: int(c.children[childExecutable].Load()),
		Topologies:  int(c.children[childTopology].Load()), Calls: int(c.children[childCall].Load())}
}

func (c *core) wrap(op string, err error) error { // c may be nil if err is nil
	if err == nil {
		return nil
	}
	return wrap(op, c.path, err)
}
