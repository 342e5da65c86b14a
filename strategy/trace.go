package strategy

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/report/phase"
)

// trace is one trace of a step function, from the graph to the module.
type trace struct {
	f      *Function
	values []Value
	module *spmd.Trace
	graph  *graph.Graph
	rc     *ReplicaContext
	vars   *Variables // variables of the function's store, or nil
	// seen accumulates, over all traces for the values, the dtypes in which the step reads its
	// variables.
	seen *precision.TraceState

	// outputs are the step's own outputs, followed by the new values of changed variables of the
	// store, and of written captured variables.
	outputs []*graph.Node
	own     int
	// nothing is set if the step has no outputs and changes no variables. It then has a placeholder
	// output.
	nothing bool
	changed []*model.Variable
	written []*capture

	// padding is the padding of the values. cut has the padded dimensions of the step's own
	// results.
	padding   paddedDims
	cut       [][]ragged.Dim
	invariant []invariance

	// variables has the variable of each argument of the module, or nil. updates has, for each
	// result after the step's own, the argument whose memory it reuses.
	variables []*Variable
	updates   []int
	// borrowed are the variables of other strategies, in the order of their arguments, which follow
	// the step's own arguments.
	borrowed []*Variable
	// constants are the large constants of the step that are arguments of its program, by number.
	constants []*sharedConstant
}

// lower traces the step for the values' signature and assembles its module. If a precision policy
// applies to a part of the step, the step is traced again until the dtype of each variable in that
// part is known.
func (f *Function) lower(ctx context.Context, values []Value, told *phases) (m *spmd.Module, t *trace, err error) {
	seen := &precision.TraceState{}
	for {
		told.begin(phase.Tracing)
		if m, t, err = f.lowerOnce(ctx, values, seen, told); !seen.NeedsRetrace() {
			return m, t, err
		}
		if t != nil {
			releaseConstants(f.strategy, t.constants)
		}
	}
}

// usedScope matches GoMLX's error for a second use of a scope.
var usedScope = regexp.MustCompile(`^sub-scope "(.+)" already visited from "(.+)"`)

func (f *Function) lowerOnce(ctx context.Context, values []Value, seen *precision.TraceState, told *phases) (m *spmd.Module, t *trace, err error) {
	var begun *trace
	defer func() {
		if r := recover(); r != nil {
			cause := fault.Cause(r)
			if _, ok := r.(runtime.Error); ok && strings.Contains(cause.Error(), "index out of range") {
				cause = fmt.Errorf("%w; the step received %d arguments", cause, len(values))
			}
			if used := usedScope.FindStringSubmatch(cause.Error()); used != nil {
				layer := used[2] // the common parent scope of both layers
				if layer == model.RootScopePath {
					layer = model.JoinPath(layer, used[1])
				}
				cause = sharedScope(layer, model.JoinPath(used[2], used[1]))
			}
			err = f.withoutRows(values, &TraceError{Function: f.opts.Name, Where: panickedAt(), Err: cause})
		}
		if err != nil && begun != nil {
			releaseConstants(f.strategy, begun.constants)
		}
	}()
	if f.step == nil {
		return nil, nil, f.traceError(fault.New(errkind.ValueError, "there is no step function", "give Function a step", "it is nil"))
	}
	if f.opts.Store != nil {
		var done func()
		if ctx, done, err = f.strategy.Variables(f.opts.Store).exclusive(ctx, "tracing "+f.opts.Name+": "); err != nil {
			return nil, nil, err
		}
		defer done()
	}
	t = f.newTrace(ctx, values, seen)
	begun = t
	defer func(rc *ReplicaContext) { rc.ended = true }(t.rc)
	t.padding = f.padding(values)
	if err := t.run(); err != nil {
		return nil, nil, err
	}
	if len(t.padding.sizes) > 0 {
		if err := t.leaveOutPadding(ctx); err != nil {
			return nil, nil, err
		}
	}
	told.begin(phase.Lowering)
	if m, err = t.assemble(); err != nil {
		return nil, nil, err
	}
	return m, t, nil
}

// sharedScope returns the error for a second layer that creates variables in a scope in use.
func sharedScope(layer, at string) error {
	var around []string
	for name := range strings.SplitSeq(strings.Trim(path.Dir(layer), model.ScopeSeparator), model.ScopeSeparator) {
		if name != "" {
			around = append(around, strconv.Quote(name))
		}
	}
	return fault.New(errkind.ValueError, fmt.Sprintf("scope %q", layer), fmt.Sprintf(
		"give each layer a scope of its own, or request the sharing with Scope.Shared, as in rc.Scope(%s).Shared(%q)", strings.Join(around, ", "), path.Base(layer)),
		"a second layer makes its variables in %q, so the two layers would share their variables", at)
}

// withoutRows adds to the error of a failed trace that a batch has no rows. Many ops accept such a
// batch, but GoMLX's broadcasts, which gradients use, do not.
func (f *Function) withoutRows(values []Value, err error) error {
	for i, v := range values {
		if base := v.base(); len(base.shape) > 0 && base.shape[0] == 0 {
			return &ArgumentError{
				Function: f.opts.Name, Argument: i, Reason: fmt.Sprintf("no rows: a replica's part is %s%v", base.dtype, base.shape),
				Hint: "leave out batches without rows", Err: err,
			}
		}
	}
	return err
}

func (f *Function) traceError(err error) error { return &TraceError{Function: f.opts.Name, Err: err} }

func (f *Function) newTrace(ctx context.Context, values []Value, seen *precision.TraceState) *trace {
	s := f.strategy
	t := &trace{f: f, values: values, seen: seen}
	options := spmd.Options{
		Replicas: s.replicas, LogicalAxes: s.opts.LogicalAxes, AllowReplicaProgram: true, Target: s.target, Precision: s.opts.Precision, Origins: true,
		Padded: len(f.padding(values).sizes) > 0,
	}
	// Package ragged reads the constants of a padded step, and internal programs run with the
	// variables of each call.
	if !options.Padded && !f.opts.own {
		options.Constant = t.constant
	}
	t.module = spmd.NewTrace(options)
	t.graph = graph.NewGraph(t.module, f.opts.Name)
	seen.Attach(t.graph)
	t.rc = &ReplicaContext{strategy: s, graph: t.graph, state: stepstate.New()}
	t.rc.contextAccess = engine.NewAccess(internalContext{t.rc})
	t.rc.ctx = mode.WithTrace(mode.With(ctx, mode.Mode{Strategy: s, Replica: true, Update: -1}), t.rc)
	region.SetVariables(t.graph, t.rc.capturedVariables)
	loop.SetScopeMarker(t.graph, t.rc.state.MarkScopes)
	if s.sharding {
		loop.SetSlicer(t.graph, func(v *model.Variable) ([]*graph.Node, func([]*graph.Node) *graph.Node) {
			_, stacks, layer := t.rc.slicing(v)
			return stacks, layer
		})
	}
	if store := f.opts.Store; store != nil {
		model.SetStore(t.graph, store)
		store.SetTraining(t.graph, f.opts.Training)
		t.rc.state.Scope = store.RootScope()
		t.vars = s.Variables(store)
		t.vars.mu.Lock()
		t.vars.paths = nil
		t.vars.mu.Unlock()
	}
	return t
}

// run runs the step function and collects its outputs and changes.
func (t *trace) run() error {
	f, rc, in := t.f, t.rc, make([]*graph.Node, len(t.values))
	for i, v := range t.values {
		in[i] = graph.Parameter(t.graph, argumentName(i), shapes.Make(v.base().dtype, v.base().shape...))
	}
	rc.values, rc.parameters = t.values, slices.Clone(in)
	rc.state.Arguments = t.annotated(in)
	if f.takesRagged() {
		rc.takeSizes(t.values)
	}
	if len(t.padding.sizes) > 0 {
		rc.padding = &t.padding
	}
	t.outputs = slices.Clone(f.step(rc, rc.state.Arguments))
	if !f.opts.MirroredRandomNumbers && rc.state.Scope != nil {
		if err := t.ownRandomNumbers(); err != nil {
			return f.traceError(err)
		}
	}
	for i, node := range t.outputs {
		if node == nil || node.Graph() != t.graph {
			return f.traceError(fault.New(errkind.TypeError, fmt.Sprintf("result %d", i), "return nodes of the graph of ReplicaContext.Graph", "it is not a node of the step"))
		}
	}
	t.own = len(t.outputs)
	if err := t.compareReplicas(); err != nil {
		return f.traceError(err)
	}
	if err := t.gatherChanged(); err != nil {
		return err
	}
	for _, c := range rc.captured {
		if c.changed {
			t.written = append(t.written, c)
			value := rc.kept(c.now, t.graph.GetParameterByName(c.name))
			if c.variable.over.IsSharded() {
				value = spmd.SliceShard(value, c.variable.over)
			}
			t.outputs = append(t.outputs, value)
		}
	}
	if check := f.strategy.checkTraining; check != nil && t.trains() {
		if err := check(t.graph); err != nil {
			return f.traceError(err)
		}
	}
	if len(t.outputs) == 0 { // a program needs a result
		t.outputs, t.own, t.nothing = []*graph.Node{graph.Const(t.graph, false)}, 1, true
	}
	if err := t.graph.Compile(t.outputs...); err != nil {
		return f.traceError(err)
	}
	return nil
}

// trains reports whether the step is a training step: the function has the option Training, or the
// step has a batch and changes trainable variables.
func (t *trace) trains() bool {
	batch := slices.ContainsFunc(t.values, func(v Value) bool { return v.base().perReplica })
	return t.f.opts.Training ||
		batch && slices.ContainsFunc(t.changed, func(v *model.Variable) bool { return v.Trainable }) ||
		batch && slices.ContainsFunc(t.written, func(c *capture) bool { return c.variable.trainable })
}

// gatherChanged collects the variables of the store that the step changes.
func (t *trace) gatherChanged() error {
	store := t.f.opts.Store
	if store == nil {
		return nil
	}
	for v := range store.IterVariables() {
		if v.ChangedInGraph(t.graph) {
			t.changed = append(t.changed, v)
			t.outputs = append(t.outputs, v.NodeValue(t.graph))
		}
	}
	if err := t.settle(t.changed, t.outputs[t.own:]); err != nil {
		return t.f.traceError(err)
	}
	for i, v := range t.changed {
		if !slices.Contains(t.rc.state.Counters, v) {
			t.outputs[t.own+i] = t.rc.stored(v, t.outputs[t.own+i])
		}
	}
	return nil
}

// arrive copies the values of the trace's variables to the devices. It also initializes the store's
// other variables, as GoMLX does.
func (t *trace) arrive(ctx context.Context) error {
	if t.vars != nil {
		if err := t.vars.initialize(ctx); err != nil {
			return fault.Of("initial values of "+t.f.opts.Name, err, "")
		}
	}
	return arrive(ctx, t.variables...)
}

// noResult is the name of the placeholder result of a step without results.
const noResult = "no_result"

func argumentName(i int) string { return fmt.Sprintf("argument_%d", i) }

// assemble builds the module of the traced graph.
func (t *trace) assemble() (*spmd.Module, error) {
	var sig spmd.Signature
	var err error
	if sig.Steps, err = stepsOf(t.values); err != nil {
		return nil, t.f.traceError(err)
	}
	if most := t.f.repeats; most > 0 {
		if err := t.checkRepeats(sig.Steps); err != nil {
			return nil, t.f.traceError(err)
		}
		sig.Steps, sig.While = most, true
	}
	next := 0 // index of the next value
	lowered, ok := t.graph.Executable().(*lowering.Executable)
	if !ok {
		return nil, t.f.traceError(errors.New("the graph was compiled by another backend"))
	}
	for _, name := range lowered.Program().ParameterNames {
		switch {
		case name == spmd.ReplicaIDName:
		case next < len(t.values) && name == argumentName(next):
			base := t.values[next].base()
			sig.Arguments = append(sig.Arguments, spmd.Tensor{
				Name: name, PerReplica: base.perReplica, PerStep: base.steps > 0, Annotation: t.annotationOf(next)})
			t.variables = append(t.variables, nil)
			next++
		default:
			argument, variable, err := t.variable(name)
			if err != nil {
				return nil, err
			}
			sig.Arguments, t.variables = append(sig.Arguments, argument), append(t.variables, variable)
		}
	}
	sig.Results = t.results()
	if err := t.f.checkRules(t.variables); err != nil {
		return nil, err
	}
	m, err := t.module.Module(t.graph, sig)
	if err != nil {
		return nil, t.f.traceError(err)
	}
	return m, nil
}

// variable returns the argument and the variable of a parameter.
func (t *trace) variable(name string) (spmd.Tensor, *Variable, error) {
	for i, c := range t.constants {
		if name == constantName(i) {
			return spmd.Tensor{Name: name, IsConstant: true}, c.Variable, nil
		}
	}
	if c := t.rc.capturedAs(name); c != nil {
		v := c.variable
		if c.borrowed { // a value, which is copied for each run
			t.borrowed = append(t.borrowed, v)
			return spmd.Tensor{Name: v.path}, nil, nil
		}
		tensor := spmd.Tensor{Name: v.path, PerReplica: v.perReplica(), ReplicaShard: v.over, Annotation: v.annotation}
		if i := slices.Index(t.written, c); i >= 0 {
			tensor.Donated, tensor.Result = true, t.own+len(t.changed)+i
		}
		return tensor, v, nil
	}
	if t.vars == nil {
		return spmd.Tensor{}, nil, t.f.traceError(fault.New(errkind.ValueError, fmt.Sprintf("parameter %q", name), "pass it as an argument", "the step made it itself"))
	}
	v, err := t.vars.variable(name)
	if err != nil {
		return spmd.Tensor{}, nil, err
	}
	tensor := spmd.Tensor{Name: name, ReplicaShard: v.over, Annotation: v.annotation}
	if i := slices.IndexFunc(t.changed, func(c *model.Variable) bool { return c.Path() == name }); i >= 0 {
		tensor.Donated, tensor.Result = true, t.own+i
	}
	return tensor, v, nil
}

// results describes the outputs and sets updates. The arguments must be known.
func (t *trace) results() (results []spmd.Tensor) {
	if t.nothing {
		return []spmd.Tensor{{Name: noResult}}
	}
	for i := range t.own {
		results = append(results, spmd.Tensor{
			Name: fmt.Sprintf("result_%d", i), PerReplica: !t.f.opts.mirroredResults, Annotation: t.f.result(i)})
	}
	for _, c := range t.changed {
		at := slices.IndexFunc(t.variables, func(v *Variable) bool { return v != nil && v.path == c.Path() && t.rc.capturing(v) == nil })
		results = append(results, spmd.Tensor{Name: c.Path(), ReplicaShard: t.variables[at].over, Annotation: t.variables[at].annotation})
		t.updates = append(t.updates, at)
	}
	for _, c := range t.written {
		v := c.variable
		results = append(results, spmd.Tensor{Name: v.path, PerReplica: v.perReplica(), ReplicaShard: v.over, Annotation: v.annotation})
		t.updates = append(t.updates, slices.Index(t.variables, v))
	}
	return results
}

// annotated applies the arguments' annotations to parameters with another layout, which are the
// values of a loop's steps.
func (t *trace) annotated(in []*graph.Node) []*graph.Node {
	for i := range in {
		if a := t.f.argument(i); !t.values[i].base().laidOut(a) {
			in[i] = logical.Apply(in[i], a)
		}
	}
	return in
}

// annotationOf returns the annotation of argument i of the module: the function's annotation if the
// value has that layout, otherwise the value's.
func (t *trace) annotationOf(i int) logical.Annotation {
	base := t.values[i].base()
	if a := t.f.argument(i); a.Kind() != logical.KindNone && base.laidOut(a) {
		return a
	}
	return base.annotation
}
