package simhost

import (
	"context"
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// arrival is a process that waits for the other processes of its launch.
type arrival struct {
	program       *program
	rows          []int
	args, results [][]*pjrt.Buffer
	opts          pjrt.ExecuteOptions
	done          chan error // has a buffer for one error
}

func sortedKeys[V any](m map[int]V) []int { return slices.Sorted(maps.Keys(m)) }

// Execute launches the program with the arguments of this process. It blocks until all processes of
// the program have launched it or ctx ends.
func (e *executable) Execute(ctx context.Context, args, results [][]*pjrt.Buffer, opts pjrt.ExecuteOptions) error {
	if len(args) != len(e.rows) || len(results) != len(e.rows) {
		return fault(e.program.op(), "%d and %d lists for the %d devices of this process", len(args), len(results),
			len(e.rows))
	}
	p, c := e.process, e.process.cluster
	ctx, cancel := context.WithTimeout(ctx, c.opts.Patience)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return &errkind.Fault{Op: "simhost: " + e.program.op(), Reason: "timed out waiting for an earlier launch",
			Err: context.Cause(ctx)}
	}
	a := &arrival{program: e.program, rows: e.rows, args: args, results: results, opts: opts, done: make(chan error, 1)}
	c.arrive(p, a)
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
	}
	c.abandon(p, a, context.Cause(ctx))
	return <-a.done
}

// arrive adds a process to its launch, and runs the program when all processes have arrived.
func (c *Cluster) arrive(p *process, a *arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := a.program.processes
	switch {
	case p.gone:
		a.done <- p.ended()
		return
	case c.broken != nil && len(all) > 1:
		a.done <- c.broken
		return
	}
	c.waiting[p.index] = a
	for _, i := range all {
		if c.processes[i].gone {
			c.fail(c.lost(a.program, c.processes[i]))
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
			c.fail(c.programError()) // the two processes wait for each other
			return
		default:
			together = false // it first runs another program with other processes
		}
	}
	if together {
		c.launch(a.program, a.opts)
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

// launch runs a program whose processes have all arrived.
func (c *Cluster) launch(x *program, opts pjrt.ExecuteOptions) {
	devices := len(x.loaded.AddressableDevices())
	args, results := make([][]*pjrt.Buffer, devices), make([][]*pjrt.Buffer, devices)
	for _, i := range x.processes {
		a := c.waiting[i]
		for j, row := range a.rows {
			// The lists belong to the processes, which receive the results in them.
			args[row], results[row] = a.args[j], a.results[j]
		}
	}
	// The timeout of the wait does not apply to the execution.
	err := x.compiled.Execute(context.Background(), args, results, opts)
	for _, i := range x.processes {
		c.waiting[i].done <- err
		delete(c.waiting, i)
		if len(x.processes) > 1 {
			c.processes[i].launches++
		}
	}
}

// abandon ends the wait of a process unless it has already ended.
func (c *Cluster) abandon(p *process, a *arrival, cause error) {
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
	c.fail(c.missing(a.program.op(), p.index, missing, cause))
}
