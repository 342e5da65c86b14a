package strategy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// program is a compiled step: one signature of a function.
type program struct {
	function   *Function
	module     *spmd.Module
	executable system.Executable
	// rows are the partitions that this process launches, in launch order.
	rows []int
	// variables are the program's arguments that are variables, in argument order; nil stands for
	// an argument of the step, in its own order.
	variables []*Variable
	// ragged says which of the step's arguments, in their own order, are padded values whose
	// replicas differ in shape.
	ragged []bool
	// padding is what the program leaves out, cut are the padded dimensions of the step's own
	// results, nil without padding.
	padding paddedDims
	cut     [][]ragged.Dim
	// invariant says of the step's own results whether they are the same on all replicas.
	invariant []invariance
	// code is the serialized program of a step from a file: some plugins write out a program that
	// they loaded without its machine code.
	code []byte
	// updates are, for the results after the step's own, the argument that gave its memory.
	updates []int
	// borrowed are the other strategies' variables that the program reads: its arguments after the
	// step's own.
	borrowed []*Variable
	// constants are the large constants among variables, which the program holds until it is closed.
	constants []*sharedConstant
	results   int // the step's own
	// structure is the nest that the step of a nest.Function returned.
	structure any
	donate    []bool
	// lowering, arriving (of the variables) and compiling are how long it took to make.
	lowering, arriving, compiling time.Duration
}

// compile traces, lowers and compiles the function for the values' signature.
func (f *Function) compile(ctx context.Context, values []Value, to purpose) (p *program, err error) {
	start, s := time.Now(), f.strategy
	told := f.phases()
	defer func() { told.done(err) }()
	m, t, err := f.lower(ctx, values, told)
	lowered := time.Now()
	if err == nil {
		defer func() {
			if err != nil {
				releaseConstants(s, t.constants)
			}
		}()
	}
	if err = f.agree(ctx, values, m, t, err); err != nil {
		return nil, err
	}
	told.compile(len(m.Text))
	p = &program{function: f, module: m, variables: t.variables, updates: t.updates, borrowed: t.borrowed, constants: t.constants, results: len(m.Results) - len(t.updates), structure: t.rc.state.Structure,
		padding: paddingOf(values, f.microbatchRows(values)), cut: t.cut, invariant: t.invariant}
	for _, a := range m.Arguments {
		p.donate = append(p.donate, a.Donated)
	}
	for _, v := range values {
		p.ragged = append(p.ragged, v.base().ragged != nil)
	}
	// The values arrive while the compiler is at work, which has nothing to do with them.
	p.lowering = lowered.Sub(start)
	arrive := func() error {
		defer func(start time.Time) { p.arriving = time.Since(start) }(time.Now())
		return t.arrive(ctx)
	}
	if to != toRun {
		arrive = nil
	} else {
		m.Drop()
	}
	p.executable, p.compiling, err = s.machine.Build(ctx, f.opts.Name, pjrt.Program{Code: m.Text, Trusted: true}, s.machine.Options(m.Replicas), arrive)
	if err != nil {
		return nil, p.refused(err)
	}
	if p.rows, err = s.machine.Rows(p.executable); err != nil {
		return nil, errors.Join(err, p.executable.Close())
	}
	return p, p.keep()
}

// keep makes the program one that the closing of its function or strategy closes. If that came
// before, the program is closed now.
func (p *program) keep() error {
	f, s := p.function, p.function.strategy
	s.mu.Lock()
	open := !s.closed.Load() && !f.closed.Load()
	if open {
		s.programs = append(s.programs, p)
	}
	s.mu.Unlock()
	if open {
		return nil
	}
	return errors.Join(f.check(), p.executable.Close())
}

// matrix lays out the arguments and results of a launch, device by device. The results that update
// a variable are the variable's own buffers: they are donated and used again by the same call.
func (p *program) matrix(variables []*Variable, values, results [][]*pjrt.Buffer) (args, outs [][]*pjrt.Buffer) {
	args, outs = make([][]*pjrt.Buffer, len(p.rows)), make([][]*pjrt.Buffer, len(p.rows))
	for row, d := range p.rows {
		args[row] = make([]*pjrt.Buffer, len(variables))
		next := 0
		for i, v := range variables {
			if v != nil {
				args[row][i] = v.buffers[d]
			} else {
				args[row][i] = values[next][d]
				next++
			}
		}
		outs[row] = make([]*pjrt.Buffer, p.results+len(p.updates))
		for j := range results {
			outs[row][j] = results[j][d]
		}
		for k, from := range p.updates {
			outs[row][p.results+k] = args[row][from]
		}
	}
	return args, outs
}

// column returns a result's buffers by partition; those of other processes' are nil.
func (p *program) column(outs [][]*pjrt.Buffer, j int) mesh.Buffers {
	return p.function.strategy.machine.Column(outs, p.rows, j)
}

// run launches the program on the values and returns its results. Variables, if given, take the
// places of those that the program was traced with.
func (p *program) run(ctx context.Context, values []Value, variables ...*Variable) ([]Value, error) {
	s := p.function.strategy
	if len(p.borrowed) > 0 {
		borrowed, err := p.borrow(ctx)
		if err != nil {
			return nil, err
		}
		defer borrowed.close()
		values = append(slices.Clone(values), borrowed...)
	}
	buffers, err := buffersOf(values)
	if err != nil {
		return nil, err
	}
	if len(variables) > 0 {
		all := slices.Clone(p.variables)
		for i, v := range all {
			if v != nil {
				all[i], variables = variables[0], variables[1:]
			}
		}
		variables = all
	} else {
		variables = p.variables
	}
	if err := arrive(ctx, variables...); err != nil {
		return nil, err
	}
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	if err := s.check(); err != nil {
		return nil, err
	}
	for _, v := range variables {
		if v != nil && v.closed {
			return nil, v.live()
		}
	}
	args, outs := p.matrix(variables, buffers, nil)
	if err := p.executable.Execute(ctx, args, outs, pjrt.ExecuteOptions{Donate: p.donate}); err != nil {
		return nil, closedMeanwhile(fault.Of("running "+p.function.opts.Name, err, ""))
	}
	results := make([]Value, p.results)
	for j := range results {
		if results[j], err = p.result(j, p.column(outs, j), values); err != nil {
			return nil, err
		}
	}
	if p.givesNothing() {
		return nil, results[0].Close()
	}
	return results, nil
}

// result makes a value of result j of a launch over the values.
func (p *program) result(j int, buffers mesh.Buffers, values []Value) (Value, error) {
	r := p.module.Results[j]
	v, err := p.function.strategy.newValue(r.PerReplica, r.DType, r.Local, r.Annotation, buffers)
	if err != nil {
		return nil, err
	}
	p.cutTo(j, v.base(), values)
	p.compare(j, v.base(), values)
	return v, nil
}

// givesNothing says whether the program's one result only stands for there being none.
func (p *program) givesNothing() bool { return p.results == 1 && p.module.Results[0].Name == noResult }

// close is called under machine.Launch.
func (p *program) close() error {
	return errors.Join(p.executable.Close(), p.function.strategy.constants.release(p.constants))
}

// borrow copies what other strategies' variables that the program reads hold now.
func (p *program) borrow(ctx context.Context) (values copies, err error) {
	for _, v := range p.borrowed {
		c, err := operandOf(v).borrow(ctx, p.function.strategy, "reading for "+p.function.opts.Name)
		if err != nil {
			_ = values.close()
			return nil, err
		}
		values = append(values, c.value)
	}
	return values, nil
}

// purpose says whether a program is to run or only to be compiled.
type purpose int

const (
	// toRun needs contents: of the arguments, and of the variables.
	toRun purpose = iota
	// toCompile needs shapes.
	toCompile
)

// compare notes whether a result is the same on all replicas, given the arguments.
func (p *program) compare(result int, v *deviceValue, values []Value) {
	if !v.perReplica {
		return
	}
	if v.equal = v.strategy.replicas == 1; result >= len(p.invariant) {
		return
	}
	v.equal = v.equal || p.invariant[result].always
	if v.equal || !p.invariant[result].given {
		return
	}
	for _, x := range values {
		if x.base().varying() {
			return
		}
	}
	v.equal = true
}
