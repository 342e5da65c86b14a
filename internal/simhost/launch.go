package simhost

import (
	"context"
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// arrival is a process that waits for the others of its launch.
type arrival struct {
	program       *program
	rows          []int
	args, results [][]*pjrt.Buffer
	opts          pjrt.ExecuteOptions
	done          chan error // room for one
}

func sortedKeys[V any](m map[int]V) []int { return slices.Sorted(maps.Keys(m)) }

// Execute launches the program with this process's arguments. It blocks until all processes of the
// program have launched it or ctx ends.
func (e *executable) Execute(ctx context.Context, args, results [][]*pjrt.Buffer, opts pjrt.ExecuteOptions) error {
	if len(args) != len(e.rows) || len(results) != len(e.rows) {
		return fault(e.program.op(), "%d and %d lists for the %d devices of this process", len(args), len(results), len(e.rows))
	}
	p, c := e.process, e.process.cluster
	ctx, cancel := context.WithTimeout(ctx, c.opts.Patience)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return &errkind.Fault{Op: "simhost: " + e.program.op(), Reason: "waiting for an earlier launch", Err: context.Cause(ctx)}
	}
	a := &arrival{program: e.program, rows: e.rows, args: args, results: results, opts: opts, done: make(chan error, 1)}
	c.arrive(p, a)
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
	}
	c.giveUp(p, a, context.Cause(ctx))
	return <-a.done
}

// arrive adds a process to its launch, and launches if it is the last one.
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
			c.fail(c.different()) // each waits for the other
			return
		default:
			together = false // it runs something else with others first
		}
	}
	if together {
		c.launch(a.program, a.opts)
	}
}

// different is the error for processes that will never meet.
func (c *Cluster) different() *ProgramError {
	e := &ProgramError{}
	for _, i := range sortedKeys(c.waiting) {
		x := c.waiting[i].program
		e.Launching = append(e.Launching, Launch{Process: i, Name: c.opts.Names[i], Program: x.name, Fingerprint: x.fingerprint})
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
			// The rows are the processes' own: the results arrive in them.
			args[row], results[row] = a.args[j], a.results[j]
		}
	}
	// What bounds the wait for the others does not bound the work.
	err := x.compiled.Execute(context.Background(), args, results, opts)
	for _, i := range x.processes {
		c.waiting[i].done <- err
		delete(c.waiting, i)
		if len(x.processes) > 1 {
			c.processes[i].launches++
		}
	}
}

// giveUp ends a process's wait, if nobody has yet.
func (c *Cluster) giveUp(p *process, a *arrival, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[p.index] != a {
		return // its outcome is under way
	}
	var missing []int
	for _, i := range a.program.processes {
		if other, ok := c.waiting[i]; !ok || other.program != a.program {
			missing = append(missing, i)
		}
	}
	c.fail(c.missing(a.program.op(), p.index, missing, cause))
}
