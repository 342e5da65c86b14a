package strategy

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Binding is a function with fixed arguments, for loops that launch one program repeatedly. A
// launch performs no lookups and no allocations, and overwrites the results of the previous launch.
// A Binding is safe for concurrent use.
type Binding struct {
	program *program

	// The strategy's launch lock guards the fields below.
	arguments    []Value         // keeps the arguments from being garbage collected
	numArguments int             // number of arguments that are not borrowed from other strategies
	ownedValues  temporaryValues // copies that Close closes
	results      []Value
	columns      [][]*pjrt.Buffer // buffers of the arguments, by argument, then device
	args, outs   [][]*pjrt.Buffer
	generation   int
	closed       bool
}

// Bind compiles the function for these arguments. It copies host values, and values whose layout
// differs from the layout that the function expects. [Binding.Close] releases these copies. The
// caller owns all other values, and must keep them open while the Binding is in use.
func (f *Function) Bind(ctx context.Context, args ...any) (*Binding, error) {
	if err := RefuseTracing(ctx, "binding "+f.opts.Name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	values, made, err := f.prepareArguments(ctx, args, purposeRun)
	if err != nil {
		return nil, err
	}
	b, err := f.bind(ctx, values)
	if err != nil {
		_ = made.close()
		return nil, err
	}
	b.ownedValues = made
	return b, nil
}

func (f *Function) bind(ctx context.Context, values []Value) (*Binding, error) {
	p, err := f.program(ctx, values, purposeRun)
	if err != nil {
		return nil, err
	}
	if err := initVariables(ctx, p.variables...); err != nil {
		return nil, err
	}
	borrowed, err := p.copyBorrowed(ctx)
	if err != nil {
		return nil, err
	}
	b := &Binding{program: p, generation: -1, arguments: slices.Concat(values, borrowed), numArguments: len(values)}
	values = b.arguments
	buffers, err := buffersOf(values)
	if err != nil {
		return nil, err
	}
	b.columns = buffers
	b.launchLock().Lock()
	defer b.launchLock().Unlock()
	b.updateTables(nil)
	return b, nil
}

// updateTables fills the buffer tables of the next launch. results has the buffers to reuse for the
// results, or is nil.
func (b *Binding) updateTables(results [][]*pjrt.Buffer) {
	b.args, b.outs = b.program.bufferTables(b.program.variables, b.columns, results)
	b.generation = b.program.function.strategy.generation
}

// Launch enqueues one run of the function. For a training step it returns a train.NonFiniteError if
// the step stopped.
func (b *Binding) Launch(ctx context.Context) error {
	if Tracing(ctx) {
		return RefuseTracing(ctx, "launching "+b.program.function.opts.Name, fault.InsteadOfRunning)
	}
	if len(b.program.borrowed) > 0 {
		if err := b.updateBorrowed(ctx); err != nil {
			return err
		}
	}
	s := b.program.function.strategy
	s.runtime.Launch.Lock()
	err := b.launchLocked(ctx)
	s.runtime.Launch.Unlock() // not deferred: a defer costs a tenth of the overhead of a short launch
	if guard := b.program.function.guard; guard != nil && err == nil {
		return guard.Launched(ctx, b.program.function)
	}
	return err
}

// updateBorrowed copies the current values of variables that belong to other strategies.
func (b *Binding) updateBorrowed(ctx context.Context) error {
	fresh, err := b.program.copyBorrowed(ctx)
	if err != nil {
		return err
	}
	columns, err := buffersOf(fresh)
	if err != nil {
		_ = fresh.close()
		return err
	}
	for i := range fresh {
		b.setColumn(b.numArguments+i, columns[i])
	}
	b.launchLock().Lock()
	old := temporaryValues(slices.Clone(b.arguments[b.numArguments:]))
	copy(b.arguments[b.numArguments:], fresh)
	b.launchLock().Unlock()
	return old.close()
}

// launchLocked implements Launch. The caller must hold launchLock.
func (b *Binding) launchLocked(ctx context.Context) error {
	p := b.program
	s := p.function.strategy
	if b.closed {
		return newClosedError("bind it again", "bound function %s", p.function.opts.Name)
	}
	if s.closed.Load() {
		return errStrategyClosed
	}
	if b.generation != s.generation {
		b.updateTables(b.resultColumns())
	}
	// The buffers of an earlier launch are closed, so that this launch reuses them.
	for j := range p.results {
		for d := range b.outs {
			if old := b.outs[d][j]; old != nil {
				if err := old.Close(); err != nil {
					return fault.Wrap("running "+p.function.opts.Name, err, "")
				}
			}
		}
	}
	o := pjrt.ExecuteOptions{Donate: p.donate}
	err := p.executable.Execute(ctx, b.args, b.outs, o)
	for err != nil && b.dropBusyResults(err) {
		err = p.executable.Execute(ctx, b.args, b.outs, o)
	}
	if err != nil {
		return asClosedError(fault.Wrap("running "+p.function.opts.Name, err, ""))
	}
	if b.results == nil && p.results > 0 {
		return b.createResults()
	}
	return nil
}

// dropBusyResults checks whether a launch failed because a reader still uses a result of the
// previous launch. If so, it leaves the old results to the reader and returns true, so that the
// next launch creates new results. For any other error it returns false.
func (b *Binding) dropBusyResults(err error) bool {
	var wrong *pjrt.ArgumentError
	if b.results == nil || !errors.Is(err, pjrt.ErrBusy) || !errors.As(err, &wrong) || !wrong.IsResult ||
		wrong.Index >= b.program.results {
		return false
	}
	for _, v := range b.results {
		_ = v.Close() // already closed; this unregisters it from the strategy
	}
	b.results = nil
	for d := range b.outs {
		clear(b.outs[d][:b.program.results])
	}
	return true
}

// createResults creates the values of the results after the first launch. Later launches reuse
// their buffers.
func (b *Binding) createResults() error {
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

func (b *Binding) setColumn(argument int, buffers engine.Buffers) {
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

// launchLock returns the strategy's launch lock, which also guards the fields of the Binding.
func (b *Binding) launchLock() *sync.Mutex { return &b.program.function.strategy.runtime.Launch }

// Results returns the results of the latest launch, or nil before the first launch. The next launch
// overwrites the results, and Close closes them.
func (b *Binding) Results() []Value {
	b.launchLock().Lock()
	defer b.launchLock().Unlock()
	if b.program.hasNoResults() {
		return nil
	}
	return b.results
}

// Close releases the results, and the copies of arguments that Bind created.
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
	return temporaryValues(slices.Concat(b.results, b.ownedValues, b.arguments[b.numArguments:])).close()
}
