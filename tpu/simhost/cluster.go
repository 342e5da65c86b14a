package simhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Options configures a [Cluster].
type Options struct {
	// Processes is the number of processes. It must divide the number of devices.
	Processes int
	// Names are the names of the processes in errors, such as host names. nil means "process 0" and
	// so on.
	Names []string
	// MeshShape is the shape of the device mesh, as in [tpu.LogicalOptions].
	MeshShape []int
	// Patience is the timeout for other processes if the context has no earlier deadline. 0 means
	// one minute.
	Patience time.Duration
	// Compiler, if not nil, compiles instead of the base system's runtime, such as a cache of
	// compiled programs.
	Compiler pjrt.Compiler
}

// Cluster is a group of simulated processes that share the devices of one system. It is safe for
// concurrent use.
type Cluster struct {
	base     *system.System
	opts     Options
	topology tpu.Topology

	compiling sync.Mutex // guards programs
	programs  map[string]*program

	mu        sync.Mutex
	processes []*process
	numOpen   int
	allOpen   chan struct{} // closed when all processes are open
	waiting   map[int]*pendingLaunch
	broken    error
	failed    chan struct{} // closed when broken is set
}

// New returns a cluster on the devices of base, a system with one process. The caller must close
// base after all processes are closed.
func New(base *system.System, opts Options) (*Cluster, error) {
	devices := base.Topology().NumDevices()
	if opts.Processes < 1 || devices%opts.Processes != 0 {
		return nil, &errkind.Fault{Op: "simhost: new",
			Reason: fmt.Sprintf("%d processes on %d devices", opts.Processes, devices),
			Hint:   "use a number of processes that divides the number of devices", Class: errkind.ValueError}
	}
	if opts.Names == nil {
		for i := range opts.Processes {
			opts.Names = append(opts.Names, fmt.Sprintf("process %d", i))
		}
	}
	if len(opts.Names) != opts.Processes {
		return nil, fault("new", "%d names for %d processes", len(opts.Names), opts.Processes)
	}
	opts.Names = slices.Clone(opts.Names)
	if opts.Patience == 0 {
		opts.Patience = time.Minute
	}
	if opts.MeshShape == nil {
		shape := base.Topology().MeshShape()
		opts.MeshShape = shape[:]
	}
	topology, err := tpu.LogicalTopology(tpu.LogicalOptions{Devices: devices, MeshShape: opts.MeshShape,
		Tasks: opts.Processes})
	if err != nil {
		return nil, &errkind.Fault{Op: "simhost: new", Err: err}
	}
	return &Cluster{
		base: base, opts: opts, topology: topology, programs: map[string]*program{},
		processes: make([]*process, opts.Processes), allOpen: make(chan struct{}), waiting: map[int]*pendingLaunch{},
		failed: make(chan struct{}),
	}, nil
}

// Topology returns the topology of the devices. Each task is a process.
func (c *Cluster) Topology() tpu.Topology { return c.topology }

// Open starts a process and returns its system. It waits until all processes are open, like the
// runtime of a slice. If other processes do not start in time, the error is a [*MissingError].
func (c *Cluster) Open(ctx context.Context, process int) (*system.System, error) {
	rt, err := c.Connect(process)(ctx)
	if err != nil {
		return nil, err
	}
	sys, err := system.New(rt, c.topology)
	if err != nil {
		return nil, errors.Join(err, rt.Close())
	}
	return sys, nil
}

// Connect returns a function that opens the devices of a process, for the option Connect of
// [system.Options]. The devices of a process can be opened only once.
func (c *Cluster) Connect(process int) func(context.Context) (system.Runtime, error) {
	return func(ctx context.Context) (system.Runtime, error) {
		p, err := c.startProcess(process)
		if err != nil {
			return nil, err
		}
		if err := c.awaitStart(ctx, process); err != nil {
			return nil, err
		}
		return p, nil
	}
}

// startProcess adds process i to the cluster.
func (c *Cluster) startProcess(i int) (*process, error) {
	if i < 0 || i >= c.opts.Processes {
		return nil, &errkind.Fault{Op: "simhost: open", Reason: fmt.Sprintf("process %d of %d", i, c.opts.Processes),
			Hint: "processes are numbered from 0", Class: errkind.ValueError}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return nil, c.broken
	}
	if c.processes[i] != nil {
		return nil, &errkind.Fault{Op: "simhost: open", Reason: c.opts.Names[i] + " is already open",
			Hint: "a process can open its devices only once", Class: errkind.RuntimeError}
	}
	p := newProcess(c, i)
	c.processes[i] = p
	if c.numOpen++; c.numOpen == c.opts.Processes {
		close(c.allOpen)
	}
	return p, nil
}

// awaitStart waits until all processes have started. process is the number of the calling process.
func (c *Cluster) awaitStart(ctx context.Context, process int) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Patience)
	defer cancel()
	select {
	case <-c.allOpen:
		return nil
	case <-c.failed:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil && c.numOpen < c.opts.Processes {
		return c.broken
	}
	var missing []int
	for i, p := range c.processes {
		if p == nil {
			missing = append(missing, i)
		}
	}
	if missing == nil {
		return nil // the last process started at the same time
	}
	err := c.missingError("start-up", process, missing, context.Cause(ctx))
	c.breakWith(err)
	return err
}

func (c *Cluster) missingError(op string, process int, missing []int, cause error) *MissingError {
	e := &MissingError{Op: op, Here: process, Missing: missing, Err: cause}
	for _, i := range missing {
		e.Names = append(e.Names, c.opts.Names[i])
	}
	return e
}

// Kill simulates the crash of a process. If other processes wait for it during a launch or during
// start-up, their wait fails with a [*LostError].
func (c *Cluster) Kill(process int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.processes[process]
	if p != nil {
		p.ended = true
	}
	if c.numOpen < c.opts.Processes {
		c.breakWith(&LostError{Op: "start-up", Process: process, Name: c.opts.Names[process]})
		return
	}
	for _, i := range sortedKeys(c.waiting) {
		if a := c.waiting[i]; slices.Contains(a.program.processes, process) {
			c.breakWith(c.lostError(a.program, p))
			return
		}
	}
}

func (c *Cluster) lostError(x *program, p *process) *LostError {
	return &LostError{Op: x.op(), Process: p.index, Name: c.opts.Names[p.index], Launches: p.numLaunches}
}

// breakWith marks the cluster as broken and ends all waits with err, or with the first error if the
// cluster is already broken. The caller must hold mu.
func (c *Cluster) breakWith(err error) {
	if c.broken == nil {
		c.broken = err
		close(c.failed)
	}
	for _, i := range sortedKeys(c.waiting) {
		c.waiting[i].done <- c.broken
		delete(c.waiting, i)
	}
}
