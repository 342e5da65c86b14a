package simhost

import (
	"context"
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// pendingLaunch is a launch of one process that waits for the launches of the other processes.
type pendingLaunch struct {
	program       *program
	deviceIndices []int
	args, results [][]*pjrt.Buffer
	opts          pjrt.ExecuteOptions
	done          chan error // has a buffer for one error
}

func sortedKeys[V any](m map[int]V) []int { return slices.Sorted(maps.Keys(m)) }

// Execute launches the program with the arguments of this process. It blocks until ctx ends or all
// processes that share the program have launched it.
func (e *executable) Execute(ctx context.Context, args, results [][]*pjrt.Buffer, opts pjrt.ExecuteOptions) error {
	if len(args) != len(e.deviceIndices) || len(results) != len(e.deviceIndices) {
		return fault(e.program.op(), "%d and %d lists for the %d devices of this process", len(args), len(results),
			len(e.devices))
	}
	p, c := e.process, e.process.cluster
	ctx, cancel := context.WithTimeout(ctx, c.opts.Patience)
	defer cancel()
	select {
	case p.launchSlot <- struct{}{}:
		defer func() { <-p.launchSlot }()
	case <-ctx.Done():
		return &errkind.Fault{Op: "simhost: " + e.program.op(), Reason: "timed out waiting for an earlier launch",
			Err: context.Cause(ctx)}
	}
	a := &pendingLaunch{program: e.program, deviceIndices: e.deviceIndices, args: args, results: results, opts: opts,
		done: make(chan error, 1)}
	c.addLaunch(p, a)
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
	}
	c.stopWaiting(p, a, context.Cause(ctx))
	return <-a.done
}

// addLaunch adds the launch of a process. When the last of the processes that share the program has
// launched it, addLaunch runs the program.
func (c *Cluster) addLaunch(p *process, a *pendingLaunch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := a.program.processes
	switch {
	case p.ended:
		a.done <- p.endedError()
		return
	case c.broken != nil && len(all) > 1:
		a.done <- c.broken
		return
	}
	c.waiting[p.index] = a
	for _, i := range all {
		if c.processes[i].ended {
			c.breakWith(c.lostError(a.program, c.processes[i]))
			return
		}
	}
	together := true
	for _, i := range all {
		other, ok := c.waiting[i]
		switch {
		case !ok:
			together = false
		case other.program == a.program && slices.Equal(other.opts.Donate, a.opts.Donate):
		case slices.Contains(other.program.processes, p.index):
			c.breakWith(c.programError()) // the two processes wait for each other
			return
		default:
			together = false // it first runs another program with other processes
		}
	}
	if together {
		c.executeLaunch(a.program, a.opts)
	}
}

// programError returns the error for processes that launch different programs.
func (c *Cluster) programError() *ProgramError {
	e := &ProgramError{}
	for _, i := range sortedKeys(c.waiting) {
		x := c.waiting[i].program
		e.Launching = append(e.Launching, Launch{Process: i, Name: c.opts.Names[i], Program: x.name,
			Fingerprint: x.fingerprint})
	}
	return e
}

// executeLaunch runs a program after all processes that share the program have launched it. The
// caller must hold mu.
func (c *Cluster) executeLaunch(x *program, opts pjrt.ExecuteOptions) {
	devices := len(x.loaded.AddressableDevices())
	args, results := make([][]*pjrt.Buffer, devices), make([][]*pjrt.Buffer, devices)
	for _, i := range x.processes {
		a := c.waiting[i]
		for j, d := range a.deviceIndices {
			// The lists belong to the processes, which receive the results in them.
			args[d], results[d] = a.args[j], a.results[j]
		}
	}
	// The timeout of the wait does not apply to the execution.
	err := x.compiled.Execute(context.Background(), args, results, opts)
	for _, i := range x.processes {
		c.waiting[i].done <- err
		delete(c.waiting, i)
		if len(x.processes) > 1 {
			c.processes[i].numLaunches++
		}
	}
}

// stopWaiting makes the launch of a process fail with a MissingError, unless the launch has already
// ended.
func (c *Cluster) stopWaiting(p *process, a *pendingLaunch, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[p.index] != a {
		return // the wait has ended
	}
	var missing []int
	for _, i := range a.program.processes {
		if other, ok := c.waiting[i]; !ok || other.program != a.program {
			missing = append(missing, i)
		}
	}
	c.breakWith(c.missingError(a.program.op(), p.index, missing, cause))
}
