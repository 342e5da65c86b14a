package strategy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// program is a compiled step. A function has one program for each combination of the arguments'
// shapes, dtypes and layouts.
type program struct {
	function   *Function
	module     *spmd.Module
	executable system.Executable
	// rows are the partitions that this process launches, in launch order.
	rows []int
	// variables has the variable of each argument of the program, or nil for an argument of the
	// step.
	variables []*Variable
	// ragged reports for each argument of the step whether it is padded.
	ragged []bool
	// padding is the padding that the program excludes. paddedResults has the padded dimensions of
	// each result of the step, or is nil without padding.
	padding       paddedDims
	paddedResults [][]ragged.Dim
	// equalResults reports for each result of the step whether it is equal on all replicas.
	equalResults []resultEquality
	// code is the serialized program of a step from a file. It is kept because some plugins
	// serialize a loaded program without its machine code.
	code []byte
	// updates has, for each result that is the new value of a variable, the argument whose memory
	// the result reuses. These results follow the results of the step.
	updates []int
	// borrowed are the variables of other strategies that the program reads. They follow the
	// arguments of the step.
	borrowed []*Variable
	// constants are the large constants among variables. Closing the program releases them.
	constants []*sharedConstant
	results   int // number of the step's own results
	// resultNest is the nest that the step of a nest.Function returned.
	resultNest any
	donate     []bool
	// Times of lowering, of copying the variables to the devices, and of compiling.
	lowering, initializing, compiling time.Duration
}

// compile traces, lowers and compiles the function for arguments like the given values.
func (f *Function) compile(ctx context.Context, values []Value, goal purpose) (p *program, err error) {
	start, s := time.Now(), f.strategy
	phases := f.newPhaseReporter()
	defer func() { phases.reportDone(err) }()
	m, t, err := f.lower(ctx, values, phases)
	lowered := time.Now()
	if err == nil {
		defer func() {
			if err != nil {
				releaseConstants(s, t.constants)
			}
		}()
	}
	if err = f.checkAgreement(ctx, values, m, t, err); err != nil {
		return nil, err
	}
	phases.reportCompiling(len(m.Text))
	p = &program{function: f, module: m, variables: t.variables, updates: t.updates, borrowed: t.borrowed,
		constants: t.constants, results: len(m.Results) - len(t.updates), resultNest: t.rc.state.Structure,
		padding: newPaddedDims(values, f.microbatchRows(values)), paddedResults: t.paddedResults,
		equalResults: t.equalResults}
	for _, a := range m.Arguments {
		p.donate = append(p.donate, a.Donated)
	}
	for _, v := range values {
		p.ragged = append(p.ragged, v.base().replicaShapes != nil)
	}
	// The values are copied during the compilation, which does not depend on them.
	p.lowering = lowered.Sub(start)
	arrive := func() error {
		defer func(start time.Time) { p.initializing = time.Since(start) }(time.Now())
		return t.initVariables(ctx)
	}
	if goal != purposeRun {
		arrive = nil
	} else {
		m.ReleaseTrace()
	}
	p.executable, p.compiling, err = s.runtime.Build(ctx, f.opts.Name, pjrt.Program{Code: m.Text, Trusted: true},
		s.runtime.Options(m.Replicas), arrive)
	if err != nil {
		return nil, p.asMemoryError(err)
	}
	if p.rows, err = s.runtime.LaunchPartitions(p.executable); err != nil {
		return nil, errors.Join(err, p.executable.Close())
	}
	return p, p.register()
}

// register ensures that closing the function or the strategy also closes the program. If one of
// them is already closed, it closes the program and returns an error.
func (p *program) register() error {
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
	return errors.Join(f.checkOpen(), p.executable.Close())
}

// bufferTables returns the buffers of the arguments and the results of a launch, by device. The new
// value of a variable is stored in the variable's own buffers, which the launch donates and reuses.
func (p *program) bufferTables(variables []*Variable, values, results [][]*pjrt.Buffer) (args, outs [][]*pjrt.Buffer) {
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

// column returns the buffers of result j by partition. Buffers of other processes are nil.
func (p *program) column(outs [][]*pjrt.Buffer, j int) engine.Buffers {
	return p.function.strategy.runtime.TableColumn(outs, p.rows, j)
}

// run launches the program on the values and returns its results. If variables are given, the
// program uses them instead of the variables of the trace.
func (p *program) run(ctx context.Context, values []Value, variables ...*Variable) ([]Value, error) {
	s := p.function.strategy
	if len(p.borrowed) > 0 {
		borrowed, err := p.copyBorrowed(ctx)
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
	if err := initVariables(ctx, variables...); err != nil {
		return nil, err
	}
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	for _, v := range variables {
		if v != nil && v.closed {
			return nil, v.checkOpen()
		}
	}
	args, outs := p.bufferTables(variables, buffers, nil)
	if err := p.executable.Execute(ctx, args, outs, pjrt.ExecuteOptions{Donate: p.donate}); err != nil {
		return nil, asClosedError(fault.Wrap("running "+p.function.opts.Name, err, ""))
	}
	results := make([]Value, p.results)
	for j := range results {
		if results[j], err = p.result(j, p.column(outs, j), values); err != nil {
			return nil, err
		}
	}
	if p.hasNoResults() {
		return nil, results[0].Close()
	}
	return results, nil
}

// result creates the value for result number j of a launch. values are the arguments of the launch.
func (p *program) result(j int, buffers engine.Buffers, values []Value) (Value, error) {
	r := p.module.Results[j]
	v, err := p.function.strategy.newValue(r.PerReplica, r.DType, r.LocalDims, r.Annotation, buffers)
	if err != nil {
		return nil, err
	}
	p.truncateResult(j, v.base(), values)
	p.markEqual(j, v.base(), values)
	return v, nil
}

// hasNoResults reports whether the step function returns no results. Its program then has a
// placeholder result.
func (p *program) hasNoResults() bool { return p.results == 1 && p.module.Results[0].Name == noResult }

// close closes the program. The caller must hold engine.Runtime.Launch.
func (p *program) close() error {
	return errors.Join(p.executable.Close(), p.function.strategy.constants.release(p.constants))
}

// copyBorrowed copies the current values of variables of other strategies that the program reads.
func (p *program) copyBorrowed(ctx context.Context) (values temporaryValues, err error) {
	for _, v := range p.borrowed {
		c, err := operandOf(v).copyFromOtherStrategy(ctx, p.function.strategy, "reading for "+p.function.opts.Name)
		if err != nil {
			_ = values.close()
			return nil, err
		}
		values = append(values, c.value)
	}
	return values, nil
}

// purpose is the reason for building a program: to run it or only to compile it.
type purpose int

const (
	// purposeRun requires the contents of the arguments and of the variables.
	purposeRun purpose = iota
	// purposeCompile requires only their shapes.
	purposeCompile
)

// markEqual records in v whether the given result of the step is equal on all replicas. This may
// depend on which of the arguments values are equal on all replicas.
func (p *program) markEqual(result int, v *deviceValue, values []Value) {
	if !v.perReplica {
		return
	}
	if v.equal = v.strategy.replicas == 1; result >= len(p.equalResults) {
		return
	}
	v.equal = v.equal || p.equalResults[result].always
	if v.equal || !p.equalResults[result].ifArgumentsEqual {
		return
	}
	for _, x := range values {
		if x.base().isVarying() {
			return
		}
	}
	v.equal = true
}
