package strategy

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Binding is a function with its arguments fixed, for a loop that launches one program again and
// again: a launch looks nothing up and allocates nothing, and overwrites the results of the launch
// before. A Binding is safe for concurrent use; launches take turns.
type Binding struct {
	program *program

	// The rest is guarded by the strategy's launch lock.
	arguments  []Value // the arguments: a value that nobody holds is collected
	own        int     // how many of them are not borrowed from other strategies
	made       copies  // those that are closed with the Binding
	results    []Value
	columns    [][]*pjrt.Buffer // of the results, by result, then device
	args, outs [][]*pjrt.Buffer
	generation int
	closed     bool
}

// Bind compiles the function for these arguments and fixes them. Bind copies host arguments now,
// and values that come in another layout than the function's; Close releases these copies. Other
// values stay the caller's, who keeps them open as long as the Binding is launched.
func (f *Function) Bind(ctx context.Context, args ...any) (*Binding, error) {
	if err := RefuseTracing(ctx, "binding "+f.opts.Name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	values, made, err := f.arguments(ctx, args, toRun)
	if err != nil {
		return nil, err
	}
	b, err := f.bind(ctx, values)
	if err != nil {
		_ = made.close()
		return nil, err
	}
	b.made = made
	return b, nil
}

// bind lays out the launch of the values' program over them.
func (f *Function) bind(ctx context.Context, values []Value) (*Binding, error) {
	p, err := f.program(ctx, values, toRun)
	if err != nil {
		return nil, err
	}
	if err := arrive(ctx, p.variables...); err != nil {
		return nil, err
	}
	borrowed, err := p.borrow(ctx)
	if err != nil {
		return nil, err
	}
	b := &Binding{program: p, generation: -1, arguments: slices.Concat(values, borrowed), own: len(values)}
	values = b.arguments
	buffers, err := buffersOf(values)
	if err != nil {
		return nil, err
	}
	b.columns = buffers
	b.launchLock().Lock()
	defer b.launchLock().Unlock()
	b.layout(nil)
	return b, nil
}

// layout arranges the matrices anew, keeping the results.
func (b *Binding) layout(results [][]*pjrt.Buffer) {
	b.args, b.outs = b.program.matrix(b.program.variables, b.columns, results)
	b.generation = b.program.function.strategy.generation
}

// Launch runs the function once and returns when the work is under way. It overwrites the results
// of the launch before. The context bounds the wait for a turn.
func (b *Binding) Launch(ctx context.Context) error {
	if Tracing(ctx) {
		return RefuseTracing(ctx, "launching "+b.program.function.opts.Name, fault.InsteadOfRunning)
	}
	if len(b.program.borrowed) > 0 {
		if err := b.borrow(ctx); err != nil {
			return err
		}
	}
	s := b.program.function.strategy
	s.machine.Launch.Lock()
	err := b.run(ctx)
	s.machine.Launch.Unlock() // not deferred: that costs a tenth of a short launch's own part
	if guard := b.program.function.guard; guard != nil && err == nil {
		return guard.Launched(ctx, b.program.function)
	}
	return err
}

// borrow brings what other strategies' variables hold now.
func (b *Binding) borrow(ctx context.Context) error {
	fresh, err := b.program.borrow(ctx)
	if err != nil {
		return err
	}
	columns, err := buffersOf(fresh)
	if err != nil {
		_ = fresh.close()
		return err
	}
	for i := range fresh {
		b.setColumn(b.own+i, columns[i])
	}
	b.launchLock().Lock()
	old := copies(slices.Clone(b.arguments[b.own:]))
	copy(b.arguments[b.own:], fresh)
	b.launchLock().Unlock()
	return old.close()
}

// run is Launch with the lock held.
func (b *Binding) run(ctx context.Context) error {
	p := b.program
	s := p.function.strategy
	if b.closed {
		return closed("bound function %s", p.function.opts.Name)
	}
	if s.closed.Load() {
		return ErrClosed
	}
	if b.generation != s.generation {
		b.layout(b.resultColumns())
	}
	// Buffers of an earlier launch are closed, so that this one fills them again.
	for j := range p.results {
		for d := range b.outs {
			if old := b.outs[d][j]; old != nil {
				if err := old.Close(); err != nil {
					return fault.Of("running "+p.function.opts.Name, err, "")
				}
			}
		}
	}
	o := pjrt.ExecuteOptions{Donate: p.donate}
	err := p.executable.Execute(ctx, b.args, b.outs, o)
	for err != nil && b.letGo(err) {
		err = p.executable.Execute(ctx, b.args, b.outs, o)
	}
	if err != nil {
		return closedMeanwhile(fault.Of("running "+p.function.opts.Name, err, ""))
	}
	if b.results == nil && p.results > 0 {
		return b.adopt()
	}
	return nil
}

// letGo answers whether a launch failed because somebody reads a result of the one before. The
// results are left to the readers then, and others take their place.
func (b *Binding) letGo(err error) bool {
	var wrong *pjrt.ArgumentError
	if b.results == nil || !errors.Is(err, pjrt.ErrBusy) || !errors.As(err, &wrong) || !wrong.Result || wrong.Index >= b.program.results {
		return false
	}
	for _, v := range b.results {
		_ = v.Close() // it is closed; this ends the strategy's hold
	}
	b.results = nil
	for d := range b.outs {
		clear(b.outs[d][:b.program.results])
	}
	return true
}

// adopt makes values of the first launch's results. Later launches refill the same buffers.
func (b *Binding) adopt() error {
	for j, column := range b.resultColumns() {
		v, err := b.program.result(j, column, b.arguments)
		if err != nil {
			return err
		}
		b.results = append(b.results, v)
	}
	return nil
}

func (b *Binding) resultColumns() [][]*pjrt.Buffer {
	columns := make([][]*pjrt.Buffer, b.program.results)
	for j := range columns {
		columns[j] = b.program.column(b.outs, j)
	}
	return columns
}

// setColumn points an argument of the function at other buffers.
func (b *Binding) setColumn(argument int, buffers mesh.Buffers) {
	b.launchLock().Lock()
	defer b.launchLock().Unlock()
	b.columns[argument] = buffers
	next := 0
	for i, v := range b.program.variables {
		if v != nil {
			continue
		}
		if next == argument {
			for row, d := range b.program.rows {
				b.args[row][i] = buffers[d]
			}
			return
		}
		next++
	}
}

// launchLock returns the lock that guards a Binding.
func (b *Binding) launchLock() *sync.Mutex { return &b.program.function.strategy.machine.Launch }

// Results returns the results of the latest launch, and none before the first launch. They stay the
// Binding's: the next launch overwrites them, and Close closes them.
func (b *Binding) Results() []Value {
	b.launchLock().Lock()
	defer b.launchLock().Unlock()
	if b.program.givesNothing() {
		return nil
	}
	return b.results
}

// Close releases the results and the copies of the arguments.
func (b *Binding) Close() error {
	if b == nil || b.program == nil {
		return nil
	}
	b.launchLock().Lock()
	defer b.launchLock().Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	return copies(slices.Concat(b.results, b.made, b.arguments[b.own:])).close()
}
