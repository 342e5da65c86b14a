package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"tpustrategy/lowering/module"
	"tpustrategy/pjrt"
	"tpustrategy/tpu/system"
)

// program is a compiled step: one signature of a function.
type program struct {
	function   *Function
	module     *module.Module
	executable system.Executable
	// rows are the partitions that this process launches, in launch order.
	rows []int
	// variables are the program's arguments that are variables, in argument
	// order; nil stands for an argument of the step, in its own order.
	variables []*Variable
	// ragged says which of the step's arguments, in their own order, are padded
	// values whose replicas differ in shape.
	ragged []bool
	// code is the serialized program of a step from a file: some plugins write out a
	// program that they loaded without its machine code.
	code []byte
	// updates are, for the results after the step's own, the argument that gave
	// its memory.
	updates []int
	results int // the step's own
	donate  []bool
	// lowering and compiling are how long it took to make.
	lowering, compiling time.Duration
}

// compile traces, lowers and compiles the function for the values' signature.
func (f *Function) compile(ctx context.Context, values []Value) (*program, error) {
	start, s := time.Now(), f.strategy
	m, variables, updates, err := f.lower(ctx, values)
	lowered := time.Now()
	if err = s.agreeOnProgram(ctx, f, values, m, err); err != nil {
		return nil, err
	}
	p := &program{function: f, module: m, variables: variables, updates: updates, results: len(m.Results) - len(updates)}
	for _, a := range m.Arguments {
		p.donate = append(p.donate, a.Donated)
	}
	for _, v := range values {
		p.ragged = append(p.ragged, v.base().ragged != nil)
	}
	if p.executable, err = s.buildOnce(ctx, f.opts.Name, m); err != nil {
		return nil, err
	}
	p.lowering, p.compiling = lowered.Sub(start), time.Since(lowered)
	if s.slice == nil {
		if p.rows, err = s.rows(p.executable); err != nil {
			return nil, errors.Join(err, p.executable.Close())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = p.executable.Close()
		return nil, ErrClosed
	}
	s.programs = append(s.programs, p)
	return p, nil
}

// lower traces the step for the values' signature and assembles its module.
func (f *Function) lower(ctx context.Context, values []Value) (m *module.Module, variables []*Variable, updates []int, err error) {
	defer func() {
		if r := recover(); r != nil {
			cause, ok := r.(error)
			if !ok {
				cause = fmt.Errorf("panic: %v", r)
			}
			err = &TraceError{Function: f.opts.Name, Where: panickedAt(), Err: cause}
		}
	}()
	if f.step == nil {
		return nil, nil, nil, &TraceError{Function: f.opts.Name, Err: errors.New("there is no step function: it is nil")}
	}
	s := f.strategy
	if f.opts.Store != nil {
		var done func()
		if ctx, done, err = s.Variables(f.opts.Store).exclusive(ctx); err != nil {
			return nil, nil, nil, fmt.Errorf("strategy: tracing %s: waiting for the store: %w", f.opts.Name, err)
		}
		defer done()
	}
	t := module.NewTrace(module.Options{
		Replicas: s.replicas, LogicalDevices: s.perReplica, Target: s.target, Precision: s.opts.Precision,
	})
	g := graph.NewGraph(t, f.opts.Name)
	rc := &ReplicaContext{strategy: s, graph: g, ctx: withMode(ctx, mode{strategy: s, replica: true, update: -1})}
	var vars *Variables
	if f.opts.Store != nil {
		model.SetStore(g, f.opts.Store)
		rc.scope = f.opts.Store.RootScope()
		f.opts.Store.SetTraining(g, f.opts.Training)
		vars = s.Variables(f.opts.Store)
	}
	in := make([]*graph.Node, len(values))
	for i, v := range values {
		in[i] = graph.Parameter(g, fmt.Sprintf("argument_%d", i), shapes.Make(v.base().dtype, v.base().shape...))
	}
	rc.arguments = in
	if f.opts.PadRagged {
		rc.takeSizes(values)
	}
	outputs := slices.Clone(f.step(rc, rc.arguments))
	rc.settleRandom()
	for i, node := range outputs {
		if node == nil || node.Graph() != g {
			return nil, nil, nil, &TraceError{Function: f.opts.Name, Err: fmt.Errorf("result %d is not a node of the step", i)}
		}
	}
	own := len(outputs)
	var changed []*model.Variable
	if vars != nil {
		for v := range f.opts.Store.IterVariables() {
			if v.ChangedInGraph(g) {
				changed = append(changed, v)
				outputs = append(outputs, v.NodeValue(g))
			}
		}
		if err := rc.settle(changed, outputs[own:], in, values); err != nil {
			return nil, nil, nil, &TraceError{Function: f.opts.Name, Err: err}
		}
		if s.slice == nil {
			// First values are computed on the host, by GoMLX's own backend.
			host, err := gobackend.New("")
			if err != nil {
				return nil, nil, nil, fmt.Errorf("strategy: %w", err)
			}
			if err := f.opts.Store.InitializeVariables(host, nil); err != nil {
				return nil, nil, nil, fmt.Errorf("strategy: initial values of %s: %w", f.opts.Name, err)
			}
		}
	}
	var written []*captured
	for _, c := range rc.captured {
		if c.changed {
			written = append(written, c)
			outputs = append(outputs, c.now)
		}
	}
	if len(outputs) == 0 {
		return nil, nil, nil, &TraceError{Function: f.opts.Name, Err: fmt.Errorf("the step returns nothing and changes no variable")}
	}
	if err := g.Compile(outputs...); err != nil {
		return nil, nil, nil, &TraceError{Function: f.opts.Name, Err: err}
	}
	var sig module.Signature
	if sig.Steps, err = stepsOf(values); err != nil {
		return nil, nil, nil, &TraceError{Function: f.opts.Name, Err: err}
	}
	next := 0
	for h := range g.NumParameters() {
		name := g.GetParameterByHandle(graph.ParameterHandle(h)).GetParameterName()
		switch {
		case name == module.ReplicaIDName:
			continue
		case next < len(values) && name == fmt.Sprintf("argument_%d", next):
			base := values[next].base()
			sig.Arguments = append(sig.Arguments, module.Tensor{
				Name: name, PerReplica: base.perReplica, PerStep: base.steps > 0, Annotation: base.annotation})
			variables = append(variables, nil)
			next++
		case rc.capturedAs(name) != nil:
			c := rc.capturedAs(name)
			tensor := module.Tensor{Name: c.variable.path, PerReplica: c.variable.perReplica(), Annotation: c.variable.annotation}
			if i := slices.Index(written, c); i >= 0 {
				tensor.Donated, tensor.Result = true, own+len(changed)+i
			}
			sig.Arguments = append(sig.Arguments, tensor)
			variables = append(variables, c.variable)
		case vars == nil:
			return nil, nil, nil, &TraceError{Function: f.opts.Name, Err: fmt.Errorf(
				"the step has a parameter %q of its own; pass it as an argument", name)}
		default:
			v, err := vars.place(ctx, name)
			if err != nil {
				return nil, nil, nil, err
			}
			tensor := module.Tensor{Name: name, Annotation: v.annotation}
			if i := slices.IndexFunc(changed, func(c *model.Variable) bool { return c.Path() == name }); i >= 0 {
				tensor.Donated, tensor.Result = true, own+i
			}
			sig.Arguments = append(sig.Arguments, tensor)
			variables = append(variables, v)
		}
	}
	for i := range own {
		sig.Results = append(sig.Results, module.Tensor{
			Name: fmt.Sprintf("result_%d", i), PerReplica: !f.opts.mirroredResults, Annotation: f.result(i)})
	}
	for _, c := range changed {
		at := slices.IndexFunc(variables, func(v *Variable) bool { return v != nil && v.path == c.Path() && rc.capturing(v) == nil })
		sig.Results = append(sig.Results, module.Tensor{Name: c.Path(), Annotation: variables[at].annotation})
		updates = append(updates, at)
	}
	for _, c := range written {
		v := c.variable
		sig.Results = append(sig.Results, module.Tensor{Name: v.path, PerReplica: v.perReplica(), Annotation: v.annotation})
		updates = append(updates, slices.Index(variables, v))
	}
	if f.opts.useAllRules {
		if err := vars.unusedRule(); err != nil {
			return nil, nil, nil, err
		}
	}
	if m, err = t.Module(g, sig); err != nil {
		return nil, nil, nil, &TraceError{Function: f.opts.Name, Err: err}
	}
	return m, variables, updates, nil
}

// matrix lays out the arguments and results of a launch, device by device. The
// results that update a variable are the variable's own buffers: they are donated
// and used again by the same call.
func (p *program) matrix(values [][]*pjrt.Buffer, results [][]*pjrt.Buffer) (args, outs [][]*pjrt.Buffer) {
	return p.matrixOf(p.variables, values, results)
}

func (p *program) matrixOf(variables []*Variable, values [][]*pjrt.Buffer, results [][]*pjrt.Buffer) (args, outs [][]*pjrt.Buffer) {
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

// column returns a result's buffers by partition; those of other processes' are
// nil.
func (p *program) column(outs [][]*pjrt.Buffer, j int) []*pjrt.Buffer {
	column := make([]*pjrt.Buffer, len(p.function.strategy.devices))
	for row, d := range p.rows {
		column[d] = outs[row][j]
	}
	return column
}

// run launches the program on the values and returns its results. Variables, if
// given, take the places of those that the program was traced with.
func (p *program) run(ctx context.Context, values []Value, variables ...*Variable) ([]Value, error) {
	s := p.function.strategy
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
	if err := s.runnable("running " + p.function.opts.Name); err != nil {
		return nil, err
	}
	s.launch.Lock()
	defer s.launch.Unlock()
	if err := s.check(); err != nil {
		return nil, err
	}
	for _, v := range variables {
		if v != nil && v.closed {
			return nil, v.live()
		}
	}
	args, outs := p.matrixOf(variables, buffers, nil)
	if err := p.executable.Execute(ctx, args, outs, pjrt.ExecuteOptions{Donate: p.donate}); err != nil {
		return nil, closedMeanwhile(fmt.Errorf("strategy: running %s: %w", p.function.opts.Name, err))
	}
	results := make([]Value, p.results)
	for j := range results {
		column := p.column(outs, j)
		r := p.module.Results[j]
		if results[j], err = s.newValue(r.PerReplica, r.DType, r.Local, r.Annotation, column); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (p *program) close() error { return p.executable.Close() }
