package strategy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// StepReason says why a step cannot be saved or loaded.
type StepReason int

const (
	// StepNotAFile is a file of another kind, StepDamaged one that lost or changed
	// something, StepVersion one of another version of the form.
	StepNotAFile StepReason = iota + 1
	StepDamaged
	StepVersion
	// StepPlugin is a step of another build of the plugin, or of another plugin.
	StepPlugin
	// StepDevices is one for devices of another kind.
	StepDevices
	// StepTopology is one for another slice, StepAssignment one for another
	// device assignment on it.
	StepTopology
	StepAssignment
	// StepVariable is one whose variables do not fit those of the store, or the
	// distributed ones.
	StepVariable
	// StepUnsupported is what cannot be saved.
	StepUnsupported
	// StepArguments is a loaded step that is run for other arguments, or as a loop
	// of another number of steps, than it was compiled for.
	StepArguments
	// StepHash is a file that is not the one of [LoadOptions].SHA256.
	StepHash
)

var stepReasons = [...]string{"", "it is no step file", "it is damaged", "it has another version", "it was compiled by another plugin",
	"it was compiled for other devices", "it was compiled for another topology", "it was compiled for another device assignment",
	"its variables do not fit", "it cannot be saved", "it was compiled for other arguments",
	"it is another file"}

// String is a phrase.
func (r StepReason) String() string {
	if r < 1 || int(r) >= len(stepReasons) {
		return fmt.Sprintf("StepReason(%d)", int(r))
	}
	return stepReasons[r]
}

// StepFileError is why a compiled step cannot be saved or loaded.
type StepFileError struct {
	Reason StepReason
	// Variable is the name of the variable that does not fit, where Reason is
	// StepVariable.
	Variable string
	// Detail says what was found and what was expected.
	Detail string
	Err    error
}

func (e *StepFileError) Error() string {
	text := fmt.Sprintf("strategy: step file: %s", e.Reason)
	if e.Variable != "" {
		text += fmt.Sprintf(": variable %q", e.Variable)
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Kind is DataLossError for a file that is damaged, NotImplementedError for what cannot be saved, otherwise ValueError.
func (e *StepFileError) Kind() errkind.Kind { return e.Reason.kind() }

func (r StepReason) kind() Kind {
	switch r {
	case StepDamaged:
		return errkind.DataLossError
	case StepVersion, StepUnsupported:
		return errkind.NotImplementedError
	}
	return errkind.ValueError
}

// Unwrap returns the cause, which may be nil.
func (e *StepFileError) Unwrap() error { return e.Err }

// LoadStep reads a step that [Compiled.Save] wrote and puts it on the devices,
// without tracing or compiling anything. The function runs for the arguments that
// the step was compiled for; others are a [*TraceError] of a [*StepFileError] with
// StepArguments. A loop of steps takes stacked values of as many steps, see
// [TPUStrategy.StackBatches].
//
// store holds the step's variables, with values: load a checkpoint or build the
// model before. Distributed variables, which [TPUStrategy.NewVariable] makes, are
// those that [LoadOptions] gives, or else the strategy's own of the same names; the
// step reads and writes them from now on. They must be as they were when the step
// was saved: dtype, shape, synchronization, aggregation, local writes, annotation.
//
// The file holds machine code, which runs: who can change it can do all that this
// process can. Its checksums find damage, not malice. Load what you wrote yourself and
// kept where nobody else can write, or give [LoadOptions].SHA256 what sha256sum said of
// it when you did. It is read whole, its parts within bounds. Errors: [*StepFileError], one joined for each distributed variable that
// does not fit, [*OptionError] for a rule of [Options].Variables that reaches no variable,
// [*AheadOfTimeError], *[pjrt.Error].
func (s *TPUStrategy) LoadStep(ctx context.Context, r io.Reader, store *model.Store, opts ...LoadOptions) (*Function, error) {
	f, _, err := s.loadStep(ctx, r, store, opts)
	return f, err
}

// LoadTrainStep is [TPUStrategy.LoadStep] for a step that was made by
// [TPUStrategy.TrainStep]. One that was saved as a loop runs by
// [TrainStep.RunSteps].
func (s *TPUStrategy) LoadTrainStep(ctx context.Context, r io.Reader, store *model.Store, opts ...LoadOptions) (*TrainStep, error) {
	f, h, err := s.loadStep(ctx, r, store, opts)
	if err != nil {
		return nil, err
	}
	if !h.Training || !h.Mirrored || !h.SplitBatch {
		return nil, &StepFileError{Reason: StepNotAFile, Detail: fmt.Sprintf("%s is no training step; use LoadStep", h.Step)}
	}
	return &TrainStep{function: f, steps: map[string]*trainBound{}}, nil
}

func (s *TPUStrategy) loadStep(ctx context.Context, r io.Reader, store *model.Store, opts []LoadOptions) (*Function, stepHeader, error) {
	if err := untraced(ctx, "loading a step", fault.InsteadOfMeeting); err != nil {
		return nil, stepHeader{}, err
	}
	if err := s.runnable("loading a step"); err != nil {
		return nil, stepHeader{}, err
	}
	if err := s.check(); err != nil {
		return nil, stepHeader{}, err
	}
	var o LoadOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	data, err := readStep(r, o.SHA256)
	if err != nil {
		return nil, stepHeader{}, err
	}
	h, text, code, err := decodeStep(data)
	if err != nil {
		return nil, h, err
	}
	if err := s.fits(h); err != nil {
		return nil, h, err
	}
	m, err := h.module(text)
	if err != nil {
		return nil, h, &StepFileError{Reason: StepDamaged, Err: err}
	}
	f := s.Function(func(*ReplicaContext, []*graph.Node) []*graph.Node {
		panic(errors.New("the step was loaded from a file, which has nothing to trace"))
	}, FunctionOptions{Name: h.Step, Store: store, Training: h.Training, SplitBatch: h.SplitBatch, LocalBatch: h.LocalBatch, PadRagged: h.PadRagged, KeepPadding: h.Keep, mirroredResults: h.Mirrored, wholeModel: h.Training && h.Mirrored, guard: h.guard()})
	if err := f.opts.guard.provide(store); err != nil {
		return nil, h, err
	}
	s.rules.came(f)
	for _, a := range h.Layouts {
		annotation, err := a.in()
		if err != nil {
			return nil, h, &StepFileError{Reason: StepDamaged, Err: err}
		}
		f.opts.Arguments = append(f.opts.Arguments, annotation)
	}
	variables, err := s.distributedVariables(h, m, o)
	if err != nil {
		return nil, h, err
	}
	p, err := s.loadProgram(ctx, f, m, h, variables, code)
	if err != nil {
		return nil, h, err
	}
	var values []Value
	for i, a := range m.Arguments {
		if h.Arguments[i].Variable {
			continue
		}
		v := &PerReplica{distributed{strategy: s, dtype: a.DType, shape: a.Local, annotation: a.Annotation, perReplica: a.PerReplica}}
		if a.PerStep {
			v.steps = h.Steps
		}
		if h.Arguments[i].Ragged {
			v.ragged = standIn(a.Local, h.Arguments[i].Sizes)
		}
		values = append(values, v)
	}
	f.programs[signature(values)] = p
	f.refuse = func(others []Value) error {
		return &TraceError{Function: h.Step, Err: &StepFileError{Reason: StepArguments, Detail: otherArguments(values, others)}}
	}
	return f, h, nil
}

// otherArguments says how the arguments of a loaded step differ from those that it
// was compiled for.
func otherArguments(want, got []Value) string {
	const loaded = "the step was loaded from a file: "
	if len(got) != len(want) {
		return fmt.Sprintf(loaded+"it takes %d arguments, not %d", len(want), len(got))
	}
	steps, err := stepsOf(got)
	if err != nil {
		return loaded + err.Error()
	}
	switch wanted, _ := stepsOf(want); {
	case wanted == steps:
	case wanted == 0:
		return fmt.Sprintf(loaded+"it is one step, not a loop of %d; run it for each batch", steps)
	case steps == 0:
		return fmt.Sprintf(loaded+"it is a loop of %d steps; stack as many batches, with RunSteps or StackBatches", wanted)
	default:
		return fmt.Sprintf(loaded+"it is a loop of %d steps, not of %d; stack as many batches", wanted, steps)
	}
	describe := func(v Value) string {
		text := v.base().String()
		if v.base().steps > 0 {
			text += fmt.Sprintf(" in each of %d steps", v.base().steps)
		}
		return text
	}
	for i, v := range got {
		if signature(got[i:i+1]) != signature(want[i:i+1]) {
			return fmt.Sprintf(loaded+"argument %d is %s, and the step takes %s", i, describe(v), describe(want[i]))
		}
	}
	return loaded + "it holds the step for other arguments"
}

// loadProgram finds the step's variables in the store and puts its program on the
// devices. distributed are its other variables.
func (s *TPUStrategy) loadProgram(ctx context.Context, f *Function, m *module.Module, h stepHeader, distributed []*Variable, code []byte) (*program, error) {
	p := &program{function: f, module: m, updates: h.Updates, results: len(m.Results) - len(h.Updates), code: code}
	p.setPadding(h)
	for _, a := range h.Arguments {
		if !a.Variable {
			p.ragged = append(p.ragged, a.Ragged)
		}
	}
	for i, v := range distributed {
		if v != nil && h.Training && f.opts.Store != nil { // what the optimizer keeps for it is laid out like it
			s.Variables(f.opts.Store).trains(standInPath(m.Arguments[i].Name), v)
		}
	}
	for i, a := range m.Arguments {
		p.donate = append(p.donate, a.Donated)
		if !h.Arguments[i].Variable || distributed[i] != nil {
			p.variables = append(p.variables, distributed[i])
			continue
		}
		v, err := s.storedVariable(ctx, f.opts.Store, a)
		if err != nil {
			return nil, err
		}
		if slices.Contains(distributed, v) {
			return nil, &StepFileError{Reason: StepVariable, Variable: a.Name, Detail: "LoadOptions.Variables gives the store's variable for another one"}
		}
		p.variables = append(p.variables, v)
	}
	if err := f.checkRules(p.variables); err != nil {
		return nil, err
	}
	start := time.Now()
	x, err := s.sys.Client().Load(ctx, code, pjrt.LoadOptions{})
	if err != nil {
		return nil, fmt.Errorf("strategy: loading %s: %w", h.Step, err)
	}
	if err := checkProgram(x, m); err != nil {
		return nil, errors.Join(&StepFileError{Reason: StepDamaged, Err: err}, x.Close())
	}
	p.executable, p.compiling = x, time.Since(start)
	if p.rows, err = s.rows(p.executable); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(ErrClosed, x.Close())
	}
	s.programs = append(s.programs, p)
	return p, nil
}

// storedVariable returns the store's variable for an argument of a step.
func (s *TPUStrategy) storedVariable(ctx context.Context, store *model.Store, a module.Placed) (*Variable, error) {
	fail := func(format string, args ...any) (*Variable, error) {
		return nil, &StepFileError{Reason: StepVariable, Variable: a.Name, Detail: fmt.Sprintf(format, args...)}
	}
	if store == nil {
		return fail("there is no store; give the one that holds it")
	}
	vars := s.Variables(store)
	ctx, done, err := vars.exclusive(ctx)
	if err != nil {
		return nil, fmt.Errorf("strategy: loading a step: waiting for its store: %w", err)
	}
	defer done()
	source := store.GetVariable(a.Name)
	if source == nil {
		return fail("the store has no value of it; load a checkpoint or build the model before")
	}
	v, err := vars.place(a.Name)
	if err == nil {
		err = arrive(ctx, v)
	}
	switch {
	case err != nil:
		return nil, err
	case v.dtype != a.DType || !slices.Equal(v.shape, a.Local):
		return fail("it is %s%v in the store and %s%v in the step", v.dtype, v.shape, a.DType, a.Local)
	case !v.annotation.Equal(a.Annotation):
		return fail("it is laid out as %s here and as %s in the step; give the rules that the step was compiled with", v.annotation, a.Annotation)
	}
	return v, nil
}

// fits compares what a step was compiled for with the strategy.
func (s *TPUStrategy) fits(h stepHeader) error {
	plugin, devices, err := s.identity()
	if err != nil {
		return err
	}
	topology := s.assignment.Topology()
	switch {
	case h.Identity != plugin:
		return &StepFileError{Reason: StepPlugin, Detail: fmt.Sprintf("%q, and here is %q", h.Identity, plugin)}
	case h.Devices != devices:
		return &StepFileError{Reason: StepDevices, Detail: fmt.Sprintf("%q, and here are %q", h.Devices, devices)}
	case h.Mesh != topology.MeshShape():
		return &StepFileError{Reason: StepTopology, Detail: fmt.Sprintf("%s with mesh %v, and here is %s", h.Topology, h.Mesh, topology)}
	case !slices.EqualFunc(h.IDs, s.assignment.DeviceIDs(), slices.Equal):
		return &StepFileError{Reason: StepAssignment, Detail: fmt.Sprintf("%d replicas on devices %s, and here are %d on %s",
			len(h.IDs), some(h.IDs), s.replicas, some(s.assignment.DeviceIDs()))}
	}
	if !slices.EqualFunc(h.Coordinates, s.assignment.CoreAssignment(), slices.Equal) {
		return &StepFileError{Reason: StepTopology, Detail: "the devices of its assignment are at other coordinates"}
	}
	return nil
}

// some prints the first of many device ids.
func some(ids [][]int) string {
	if len(ids) > 4 {
		return fmt.Sprintf("%v and %d more", ids[:4], len(ids)-4)
	}
	return fmt.Sprint(ids)
}

// module is the step's module as it was saved.
func (h stepHeader) module(text []byte) (*module.Module, error) {
	mesh, err := sharding.NewMesh(h.Axes...)
	if err != nil {
		return nil, err
	}
	m := &module.Module{Name: h.Step, Text: text, Mesh: mesh, Replicas: max(h.Replicas, 1)}
	if m.Partitions = mesh.Size() / m.Replicas; m.Replicas*m.Partitions != mesh.Size() {
		return nil, fmt.Errorf("%d replicas on %d devices", m.Replicas, mesh.Size())
	}
	for _, list := range []struct {
		from []stepTensor
		to   *[]module.Placed
	}{{h.Arguments, &m.Arguments}, {h.Results, &m.Results}} {
		for _, t := range list.from {
			placed, err := t.in()
			if err != nil {
				return nil, err
			}
			if len(placed.Global) < len(placed.Local) || len(placed.Shard) != len(placed.Global) {
				return nil, fmt.Errorf("tensor %q has shapes %v, %v and %v", t.Name, placed.Local, placed.Global, placed.Shard)
			}
			if placed.Donated && (placed.Result < 0 || placed.Result >= len(h.Results)) {
				return nil, fmt.Errorf("tensor %q is donated to result %d of %d", t.Name, placed.Result, len(h.Results))
			}
			if err := h.checkShape(mesh, placed); err != nil {
				return nil, err
			}
			*list.to = append(*list.to, placed)
		}
	}
	if err := h.check(m); err != nil {
		return nil, err
	}
	return m, nil
}

// check holds the parts of a header against each other.
func (h stepHeader) check(m *module.Module) error {
	if len(h.Updates) > len(h.Results) {
		return fmt.Errorf("%d updates among %d results", len(h.Updates), len(h.Results))
	}
	if err := h.checkResults(); err != nil {
		return err
	}
	own := len(h.Results) - len(h.Updates)
	for k, at := range h.Updates {
		if at < 0 || at >= len(h.Arguments) || !h.Arguments[at].Variable || !h.Arguments[at].Donated || h.Arguments[at].Result != own+k {
			return fmt.Errorf("the update of argument %d", at)
		}
	}
	loop := false
	for i, t := range h.Arguments {
		if t.Distributed != nil {
			if !t.Variable {
				return fmt.Errorf("tensor %q is distributed and no variable", t.Name)
			}
			if _, err := t.Distributed.in(m.Arguments[i]); err != nil {
				return err
			}
		}
		if t.PerStep {
			loop = true
			if t.Variable || t.Donated || h.Steps < 1 || len(t.Global) == 0 || t.Global[0] != h.Steps || t.Shard[0] != h.Steps {
				return fmt.Errorf("tensor %q has shape %v for %d steps", t.Name, t.Global, h.Steps)
			}
		}
	}
	if loop != (h.Steps != 0) {
		return fmt.Errorf("%d steps", h.Steps)
	}
	return nil
}
