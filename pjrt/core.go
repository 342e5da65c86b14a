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

// childKind is a kind of object that keeps its client alive.
type childKind int

const (
	childBuffer childKind = iota
	childExecutable
	childTopology
	childCall // a caller that is inside
	childWork // what goes on in the plugin by itself: a compilation, a wait for an event
	childKinds
)

// core is the inner half of a Client: what its children hold on to. Nothing in it leads back to the
// Client, so that the garbage collector can tell when the Client itself was dropped without Close.
type core struct {
	api  *capi.API
	path string
	c    capi.Client

	// refs is one for the Client and one for each child; closedRefs or less once the C client is
	// gone.
	refs     atomic.Int64
	children [childKinds]atomic.Int64
	// closing is set where Close left work behind: the last of it ends the C client.
	closing atomic.Bool

	// launch is held while a program is enqueued on several devices, so that all devices see the
	// launches of this client in one order. Collectives of two programs that meet in different
	// orders would wait for each other for ever.
	launch sync.Mutex

	waits eventPipe

	// values is the key-value store, nil without one.
	values *keyValues

	// lastShape is that of the last copy from the host.
	lastShape atomic.Pointer[shape]

	// memories are the client's, by handle; written before any buffer exists.
	memories map[capi.Memory]*Memory
}

// retain counts a child; it fails once the client is closed.
func (c *core) retain(k childKind) error {
	if c == nil {
		return ErrClosed // of a zero value
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

// add counts delta children more, for a caller that holds a reference itself.
func (c *core) add(k childKind, delta int) {
	if delta != 0 {
		c.children[k].Add(int64(delta))
		c.refs.Add(int64(delta))
	}
}

// release counts a child less. The last one out ends a client that was dropped, or closed with work
// under way.
func (c *core) release(k childKind) {
	c.drop() // first: who finds no children left closes
	c.children[k].Add(-1)
}

func (c *core) drop() {
	if c.refs.Add(-1) == 0 && c.refs.CompareAndSwap(0, closedRefs) {
		// Nobody is left to tell; and the caller may be the goroutine that destroy waits for.
		go func() { _ = c.destroy() }()
	}
}

// close ends the client if it has no children.
func (c *core) close() error {
	if !c.refs.CompareAndSwap(1, closedRefs) {
		return c.openError("close client")
	}
	return c.destroy()
}

// settled says whether no object of the client is open and no caller inside. Those that were
// dropped without Close count until the garbage collector has ended them, so it is given a turn
// before the answer is no.
func (c *core) settled() bool {
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
	// Cleanups run side by side: others may end after the one that was waited for.
	for range 20 {
		if !open() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// collect runs the garbage collector and waits for the cleanups that it starts, for a moment: they
// run on goroutines of their own.
func collect() {
	ran := make(chan struct{})
	runtime.AddCleanup(new(*core), func(ran chan struct{}) { close(ran) }, ran)
	runtime.GC()
	select {
	case <-ran:
	case <-time.After(time.Second):
	}
}

// closeGrace is how long Close waits for work under way that nobody waits for any more, before it
// leaves that behind.
const closeGrace = time.Second

// worked waits until no work goes on in the plugin, for closeGrace at most.
func (c *core) worked() bool {
	for end := time.Now().Add(closeGrace); c.children[childWork].Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// leave ends the client as soon as the work under way has ended.
func (c *core) leave() {
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
	return &OpenError{Op: op, Buffers: int(c.children[childBuffer].Load()), Executables: int(c.children[childExecutable].Load()),
		Topologies: int(c.children[childTopology].Load()), Calls: int(c.children[childCall].Load())}
}

func (c *core) wrap(op string, err error) error { // c may be nil, with no error
	if err == nil {
		return nil
	}
	return wrap(op, c.path, err)
}
