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

	"tpustrategy/lowering/module"
	"tpustrategy/pjrt"
	"tpustrategy/sharding"
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
	// StepVariable is one whose variables do not fit those of the store.
	StepVariable
	// StepUnsupported is what cannot be saved.
	StepUnsupported
)

var stepReasons = [...]string{"", "it is no step file", "it is damaged", "it has another version", "it was compiled by another plugin",
	"it was compiled for other devices", "it was compiled for another topology", "it was compiled for another device assignment",
	"its variables do not fit", "it cannot be saved"}

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
	// Detail says what was found and what was expected.
	Detail string
	Err    error
}

func (e *StepFileError) Error() string {
	text := fmt.Sprintf("strategy: step file: %s", e.Reason)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause, which may be nil.
func (e *StepFileError) Unwrap() error { return e.Err }

// LoadStep reads a step that [Compiled.Save] wrote and puts it on the devices,
// without tracing or compiling anything. The function runs for the arguments that
// the step was compiled for; others are a [*TraceError]. store holds the step's
// variables, with values: load a checkpoint or build the model before.
//
// The file holds machine code: load only what you wrote yourself. It is read
// whole. Errors: [*StepFileError], [*AheadOfTimeError], *[pjrt.Error].
func (s *TPUStrategy) LoadStep(ctx context.Context, r io.Reader, store *model.Store) (*Function, error) {
	f, _, err := s.loadStep(ctx, r, store)
	return f, err
}

// LoadTrainStep is [TPUStrategy.LoadStep] for a step that was made by
// [TPUStrategy.TrainStep].
func (s *TPUStrategy) LoadTrainStep(ctx context.Context, r io.Reader, store *model.Store) (*TrainStep, error) {
	f, h, err := s.loadStep(ctx, r, store)
	if err != nil {
		return nil, err
	}
	if !h.Training || !h.Mirrored || !h.SplitBatch {
		return nil, &StepFileError{Reason: StepNotAFile, Detail: fmt.Sprintf("%s is no training step; use LoadStep", h.Step)}
	}
	return &TrainStep{function: f, steps: map[string]*trainBound{}}, nil
}

func (s *TPUStrategy) loadStep(ctx context.Context, r io.Reader, store *model.Store) (*Function, stepHeader, error) {
	if err := s.runnable("loading a step"); err != nil {
		return nil, stepHeader{}, err
	}
	if err := s.check(); err != nil {
		return nil, stepHeader{}, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, stepHeader{}, fmt.Errorf("strategy: reading a step: %w", err)
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
		panic(errors.New("the step was loaded from a file, which holds it for other arguments"))
	}, FunctionOptions{Name: h.Step, Store: store, Training: h.Training, SplitBatch: h.SplitBatch, mirroredResults: h.Mirrored})
	for _, a := range h.Layouts {
		annotation, err := a.in()
		if err != nil {
			return nil, h, &StepFileError{Reason: StepDamaged, Err: err}
		}
		f.opts.Arguments = append(f.opts.Arguments, annotation)
	}
	p, err := s.loadProgram(ctx, f, m, h, code)
	if err != nil {
		return nil, h, err
	}
	var values []Value
	for _, a := range h.Arguments {
		if a.Variable {
			continue
		}
		placed, err := a.in()
		if err != nil {
			return nil, h, &StepFileError{Reason: StepDamaged, Err: err}
		}
		values = append(values, &PerReplica{distributed{
			strategy: s, dtype: placed.DType, shape: placed.Local, annotation: placed.Annotation, perReplica: placed.PerReplica}})
	}
	f.programs[signature(values)] = p
	return f, h, nil
}

// loadProgram finds the step's variables and puts its program on the devices.
func (s *TPUStrategy) loadProgram(ctx context.Context, f *Function, m *module.Module, h stepHeader, code []byte) (*program, error) {
	p := &program{function: f, module: m, updates: h.Updates, results: len(m.Results) - len(h.Updates)}
	for i, a := range m.Arguments {
		p.donate = append(p.donate, a.Donated)
		if !h.Arguments[i].Variable {
			p.variables = append(p.variables, nil)
			continue
		}
		v, err := s.storedVariable(ctx, f.opts.Store, a)
		if err != nil {
			return nil, err
		}
		p.variables = append(p.variables, v)
	}
	start := time.Now()
	x, err := s.sys.Client().Load(ctx, code, pjrt.LoadOptions{})
	if err != nil {
		return nil, fmt.Errorf("strategy: loading %s: %w", h.Step, err)
	}
	p.executable, p.compiling = loadedExecutable{x}, time.Since(start)
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
		return nil, &StepFileError{Reason: StepVariable, Detail: fmt.Sprintf("variable %q: %s", a.Name, fmt.Sprintf(format, args...))}
	}
	if store == nil {
		return fail("there is no store; give the one that holds it")
	}
	source := store.GetVariable(a.Name)
	if source == nil || !source.HasValue() {
		return fail("the store has no value of it; load a checkpoint or build the model before")
	}
	v, err := s.Variables(store).place(ctx, a.Name)
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
	m := &module.Module{Name: h.Step, Text: text, Mesh: mesh}
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
			*list.to = append(*list.to, placed)
		}
	}
	for _, at := range h.Updates {
		if at < 0 || at >= len(h.Arguments) || !h.Arguments[at].Variable || len(h.Updates) > len(h.Results) {
			return nil, fmt.Errorf("the update of argument %d", at)
		}
	}
	return m, nil
}
