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

// trace is the state of tracing a step function once and of building its module.
type trace struct {
	f      *Function
	values []Value
	module *spmd.Trace
	graph  *graph.Graph
	rc     *ReplicaContext
	vars   *Variables // variables of the function's store, or nil
	// precision collects, over all traces for the values, the dtypes in which the step reads its
	// variables.
	precision *precision.TraceState

	// outputs are the step's results, followed by the new values of changed variables of the store
	// and of written captured variables.
	outputs    []*graph.Node
	numResults int
	// hasNoResults is set if the step has no results and changes no variables. It then has a
	// placeholder output.
	hasNoResults bool
	changed      []*model.Variable
	written      []*capture

	// padding is the padding of the values. paddedResults has the padded dimensions of each result
	// of the step.
	padding       paddedDims
	paddedResults [][]ragged.Dim
	equalResults  []resultEquality

	// variables has the variable of each argument of the module, or nil. updates has, for each
	// result that is the new value of a variable, the argument whose memory the result reuses.
	variables []*Variable
	updates   []int
	// borrowed are the variables of other strategies. Their arguments follow the arguments of the
	// step.
	borrowed []*Variable
	// constants are the large constants of the step that are arguments of its program, by number.
	constants []*sharedConstant
}

// lower traces the step for arguments like the given values and returns its module. If a precision
// policy applies to a part of the step, lower repeats the trace until it knows the dtype of each
// variable in that part.
func (f *Function) lower(ctx context.Context, values []Value, phases *phaseReporter) (m *spmd.Module, t *trace,
	err error) {
	seen := &precision.TraceState{}
	for {
		phases.reportStage(phase.Tracing)
		if m, t, err = f.lowerOnce(ctx, values, seen, phases); !seen.NeedsRetrace() {
			return m, t, err
		}
		if t != nil {
			releaseConstants(f.strategy, t.constants)
		}
	}
}

var reusedScope = regexp.MustCompile(`^sub-scope "(.+)" already visited from "(.+)"`)

func (f *Function) lowerOnce(ctx context.Context, values []Value, seen *precision.TraceState,
	phases *phaseReporter) (m *spmd.Module, t *trace, err error) {
	var begun *trace
	defer func() {
		if r := recover(); r != nil {
			cause := fault.FromPanic(r)
			if _, ok := r.(runtime.Error); ok && strings.Contains(cause.Error(), "index out of range") {
				cause = fmt.Errorf("%w; the step received %d arguments", cause, len(values))
			}
			if used := reusedScope.FindStringSubmatch(cause.Error()); used != nil {
				layer := used[2] // the common parent scope of both layers
				if layer == model.RootScopePath {
					layer = model.JoinPath(layer, used[1])
				}
				cause = newScopeError(layer, model.JoinPath(used[2], used[1]))
			}
			err = f.addEmptyBatch(values, &TraceError{Function: f.opts.Name, Where: panicLocation(), Err: cause})
		}
		if err != nil && begun != nil {
			releaseConstants(f.strategy, begun.constants)
		}
	}()
	if f.step == nil {
		return nil, nil, f.newTraceError(fault.New(errkind.ValueError, "there is no step function",
			"give Function a step", "it is nil"))
	}
	if f.opts.Store != nil {
		var done func()
		if ctx, done, err = f.strategy.Variables(f.opts.Store).lock(ctx, "tracing "+f.opts.Name+": "); err != nil {
			return nil, nil, err
		}
		defer done()
	}
	t = f.newTrace(ctx, values, seen)
	begun = t
	defer func(rc *ReplicaContext) { rc.ended = true }(t.rc)
	t.padding = f.findPadding(values)
	if err := t.run(); err != nil {
		return nil, nil, err
	}
	if len(t.padding.sizes) > 0 {
		if err := t.excludePadding(ctx); err != nil {
			return nil, nil, err
		}
	}
	phases.reportStage(phase.Lowering)
	if m, err = t.assemble(); err != nil {
		return nil, nil, err
	}
	return m, t, nil
}

// newScopeError reports that two layers use the path layer and would therefore share variables in
// the scope at.
func newScopeError(layer, at string) error {
	var around []string
	for name := range strings.SplitSeq(strings.Trim(path.Dir(layer), model.ScopeSeparator), model.ScopeSeparator) {
		if name != "" {
			around = append(around, strconv.Quote(name))
		}
	}
	return fault.New(errkind.ValueError, fmt.Sprintf("scope %q", layer), fmt.Sprintf(
		"give each layer a scope of its own, or request the sharing with Scope.Shared, as in rc.Scope(%s).Shared(%q)",
		strings.Join(around, ", "), path.Base(layer)),
		"a second layer makes its variables in %q, so the two layers would share their variables", at)
}

// addEmptyBatch adds a note to the error of a failed trace if a batch has no rows. GoMLX's
// gradients use broadcasts, which reject such a batch.
func (f *Function) addEmptyBatch(values []Value, err error) error {
	for i, v := range values {
		if base := v.base(); len(base.shape) > 0 && base.shape[0] == 0 {
			return &ArgumentError{
				Function: f.opts.Name, Argument: i, Reason: fmt.Sprintf("no rows: a replica's part is %s%v",
					base.dtype, base.shape),
				Hint: "leave out batches without rows", Err: err,
			}
		}
	}
	return err
}

func (f *Function) newTraceError(err error) error {
	return &TraceError{Function: f.opts.Name, Err: err}
}

func (f *Function) newTrace(ctx context.Context, values []Value, seen *precision.TraceState) *trace {
	s := f.strategy
	t := &trace{f: f, values: values, precision: seen}
	options := spmd.Options{
		Replicas: s.replicas, LogicalAxes: s.opts.LogicalAxes, AllowReplicaProgram: true, Target: s.target,
		Precision: s.opts.Precision, Origins: true,
		Padded: len(f.findPadding(values).sizes) > 0,
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
	loop.SetScopeMarker(t.graph, t.rc.state.SaveScopes)
	if s.shardsState {
		loop.SetSlicer(t.graph, func(v *model.Variable) ([]*graph.Node, func([]*graph.Node) *graph.Node) {
			_, stacks, layer := t.rc.layerSlices(v)
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

// run calls the step function and collects its results and the variables that it changes.
func (t *trace) run() error {
	f, rc, in := t.f, t.rc, make([]*graph.Node, len(t.values))
	for i, v := range t.values {
		in[i] = graph.Parameter(t.graph, argumentName(i), shapes.Make(v.base().dtype, v.base().shape...))
	}
	rc.values, rc.parameters = t.values, slices.Clone(in)
	rc.state.Arguments = t.applyAnnotations(in)
	if f.acceptsRagged() {
		rc.separateSizes(t.values)
	}
	if len(t.padding.sizes) > 0 {
		rc.padding = &t.padding
	}
	t.outputs = slices.Clone(f.step(rc, rc.state.Arguments))
	if !f.opts.MirroredRandomNumbers && rc.state.Scope != nil {
		if err := t.separateRandomNumbers(); err != nil {
			return f.newTraceError(err)
		}
	}
	for i, node := range t.outputs {
		if node == nil || node.Graph() != t.graph {
			return f.newTraceError(fault.New(errkind.TypeError, fmt.Sprintf("result %d", i),
				"return nodes of the graph of ReplicaContext.Graph", "it is not a node of the step"))
		}
	}
	t.numResults = len(t.outputs)
	if err := t.findEqualResults(); err != nil {
		return f.newTraceError(err)
	}
	if err := t.collectChanged(); err != nil {
		return err
	}
	for _, c := range rc.captured {
		if c.changed {
			t.written = append(t.written, c)
			value := rc.valueUnlessSkipped(c.value, t.graph.GetParameterByName(c.name))
			if c.variable.replicaShard.IsSharded() {
				value = spmd.SliceShard(value, c.variable.replicaShard)
			}
			t.outputs = append(t.outputs, value)
		}
	}
	if check := f.strategy.checkTraining; check != nil && t.isTraining() {
		if err := check(t.graph); err != nil {
			return f.newTraceError(err)
		}
	}
	if len(t.outputs) == 0 { // a program needs a result
		t.outputs, t.numResults, t.hasNoResults = []*graph.Node{graph.Const(t.graph, false)}, 1, true
	}
	if err := t.graph.Compile(t.outputs...); err != nil {
		return f.newTraceError(err)
	}
	return nil
}

// isTraining reports whether the step trains: the function has the option Training, or the step has
// a batch and changes trainable variables.
func (t *trace) isTraining() bool {
	batch := slices.ContainsFunc(t.values, func(v Value) bool { return v.base().perReplica })
	return t.f.opts.Training ||
		batch && slices.ContainsFunc(t.changed, func(v *model.Variable) bool { return v.Trainable }) ||
		batch && slices.ContainsFunc(t.written, func(c *capture) bool { return c.variable.trainable })
}

// collectChanged adds the new value of each changed store variable to the outputs of the trace.
func (t *trace) collectChanged() error {
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
	if err := t.equalizeWrites(t.changed, t.outputs[t.numResults:]); err != nil {
		return t.f.newTraceError(err)
	}
	for i, v := range t.changed {
		if !slices.Contains(t.rc.state.Counters, v) {
			t.outputs[t.numResults+i] = t.rc.storedValue(v, t.outputs[t.numResults+i])
		}
	}
	return nil
}

// initVariables copies the values of the trace's variables to the devices. Like GoMLX, it also
// initializes the other variables of the store.
func (t *trace) initVariables(ctx context.Context) error {
	if t.vars != nil {
		if err := t.vars.initStore(ctx); err != nil {
			return fault.Wrap("initial values of "+t.f.opts.Name, err, "")
		}
	}
	return initVariables(ctx, t.variables...)
}

// noResult is the name of the placeholder result of a step without results.
const noResult = "no_result"

func argumentName(i int) string { return fmt.Sprintf("argument_%d", i) }

// assemble builds the module of the traced graph.
func (t *trace) assemble() (*spmd.Module, error) {
	var sig spmd.Signature
	var err error
	if sig.Steps, err = stepsOf(t.values); err != nil {
		return nil, t.f.newTraceError(err)
	}
	if most := t.f.maxIterations; most > 0 {
		if err := t.checkRepeats(sig.Steps); err != nil {
			return nil, t.f.newTraceError(err)
		}
		sig.Steps, sig.While = most, true
	}
	next := 0 // index of the next value
	lowered, ok := t.graph.Executable().(*lowering.Executable)
	if !ok {
		return nil, t.f.newTraceError(errors.New("the graph was compiled by another backend"))
	}
	for _, name := range lowered.Program().ParameterNames {
		switch {
		case name == spmd.ReplicaIDName:
		case next < len(t.values) && name == argumentName(next):
			base := t.values[next].base()
			sig.Arguments = append(sig.Arguments, spmd.Tensor{
				Name: name, PerReplica: base.perReplica, PerStep: base.steps > 0,
				Annotation: t.argumentAnnotation(next)})
			t.variables = append(t.variables, nil)
			next++
		default:
			argument, variable, err := t.moduleArgument(name)
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
		return nil, t.f.newTraceError(err)
	}
	return m, nil
}

// moduleArgument describes a parameter of the graph as an argument of the module. It also returns
// the parameter's variable, or nil.
func (t *trace) moduleArgument(name string) (spmd.Tensor, *Variable, error) {
	for i, c := range t.constants {
		if name == constantName(i) {
			return spmd.Tensor{Name: name, IsConstant: true}, c.Variable, nil
		}
	}
	if c := t.rc.findCaptureByName(name); c != nil {
		v := c.variable
		if c.borrowed { // a value, which is copied for each run
			t.borrowed = append(t.borrowed, v)
			return spmd.Tensor{Name: v.path}, nil, nil
		}
		tensor := spmd.Tensor{Name: v.path, PerReplica: v.perReplica(), ReplicaShard: v.replicaShard,
			Annotation: v.annotation}
		if i := slices.Index(t.written, c); i >= 0 {
			tensor.Donated, tensor.Result = true, t.numResults+len(t.changed)+i
		}
		return tensor, v, nil
	}
	if t.vars == nil {
		return spmd.Tensor{}, nil, t.f.newTraceError(fault.New(errkind.ValueError, fmt.Sprintf("parameter %q",
			name), "pass it as an argument", "the step made it itself"))
	}
	v, err := t.vars.findOrAddVariable(name)
	if err != nil {
		return spmd.Tensor{}, nil, err
	}
	tensor := spmd.Tensor{Name: name, ReplicaShard: v.replicaShard, Annotation: v.annotation}
	if i := slices.IndexFunc(t.changed, func(c *model.Variable) bool { return c.Path() == name }); i >= 0 {
		tensor.Donated, tensor.Result = true, t.numResults+i
	}
	return tensor, v, nil
}

// results describes the results of the module and sets t.updates. Set t.variables before the call.
func (t *trace) results() (results []spmd.Tensor) {
	if t.hasNoResults {
		return []spmd.Tensor{{Name: noResult}}
	}
	for i := range t.numResults {
		results = append(results, spmd.Tensor{
			Name: fmt.Sprintf("result_%d", i), PerReplica: !t.f.opts.mirroredResults,
			Annotation: t.f.resultAnnotation(i)})
	}
	for _, c := range t.changed {
		at := slices.IndexFunc(t.variables, func(v *Variable) bool {
			return v != nil && v.path == c.Path() &&
				t.rc.findCapture(v) == nil
		})
		results = append(results, spmd.Tensor{Name: c.Path(), ReplicaShard: t.variables[at].replicaShard,
			Annotation: t.variables[at].annotation})
		t.updates = append(t.updates, at)
	}
	for _, c := range t.written {
		v := c.variable
		results = append(results, spmd.Tensor{Name: v.path, PerReplica: v.perReplica(),
			ReplicaShard: v.replicaShard, Annotation: v.annotation})
		t.updates = append(t.updates, slices.Index(t.variables, v))
	}
	return results
}

// applyAnnotations splits the parameters whose layout differs from their annotation. This is the
// case for the batches of a loop over steps.
func (t *trace) applyAnnotations(in []*graph.Node) []*graph.Node {
	for i := range in {
		if a := t.f.argumentAnnotation(i); !t.values[i].base().hasLayout(a) {
			in[i] = logical.Apply(in[i], a)
		}
	}
	return in
}

// argumentAnnotation returns the annotation of argument i of the module. It prefers the annotation
// that the function specifies if the value has that layout, and otherwise returns the value's own
// annotation.
func (t *trace) argumentAnnotation(i int) logical.Annotation {
	base := t.values[i].base()
	if a := t.f.argumentAnnotation(i); a.Kind() != logical.KindNone && base.hasLayout(a) {
		return a
	}
	return base.annotation
}
