package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// stepLoader is the state of loading a step from a step file onto the devices.
type stepLoader struct {
	*savedstep.Step
	f    *Function
	fail savedstep.NewError
}

// LoadStep loads a step of a step file. The caller must already have checked that the file is
// consistent. store contains the step's variables with their values. distributed has an entry for
// each argument: the variable if the argument is a variable of NewVariable, otherwise nil. fail
// creates the error for a step that does not match the strategy or its variables.
func (m internalStrategy) LoadStep(ctx context.Context, store *model.Store, step *savedstep.Step,
	distributed []*Variable, fail savedstep.NewError) (*Function, error) {
	s := m.TPUStrategy
	f := s.Function(func(*ReplicaContext, []*graph.Node) []*graph.Node {
		panic(fault.New(errkind.NotImplementedError, step.Name, "give arguments like those that it was compiled for",
			"the step was loaded from a file, which has nothing to trace"))
	}, FunctionOptions{
		Name: step.Name, Store: store, Training: step.Training, Arguments: step.Annotations,
		SplitBatch: step.SplitBatch, LocalBatch: step.LocalBatch,
		Padding: Padding(step.Padding), mirroredResults: step.Mirrored,
	})
	f.usesAllVariables, f.loaded = step.IsTraining(), step
	l := &stepLoader{Step: step, f: f, fail: fail}
	s.rules.removeUntraced(f)
	p, err := l.program(ctx, distributed)
	if err != nil {
		return nil, err
	}
	values := l.argumentValues()
	f.programs[signature(values)] = p
	f.mismatchError = func(others []Value) error {
		return &TraceError{Function: step.Name, Err: fail(describeMismatch(values, others))}
	}
	return f, nil
}

// argumentValues returns values without contents that have the shapes and layouts for which the
// step was compiled.
func (l *stepLoader) argumentValues() (values []Value) {
	for i, a := range l.Module.Arguments {
		argument := l.Arguments[i]
		if argument.Variable {
			continue
		}
		v := &PerReplica{deviceValue{strategy: l.f.strategy, dtype: a.DType, shape: a.LocalDims,
			annotation: a.Annotation, perReplica: a.PerReplica}}
		if a.PerStep {
			v.steps = l.Steps
		}
		if argument.Ragged {
			v.replicaShapes = unequalShapes(a.LocalDims, argument.Sizes)
		}
		values = append(values, v)
	}
	return values
}

// program loads the compiled program of the step. It finds the step's variables in the store.
// Variables that are not in the store are in distributed, at the index of their argument.
func (l *stepLoader) program(ctx context.Context, distributed []*Variable) (_ *program, err error) {
	s, f, m := l.f.strategy, l.f, l.Module
	p := &program{function: f, module: m, updates: l.Updates, results: len(m.Results) - len(l.Updates), code: l.Code}
	defer func() {
		if err != nil {
			releaseConstants(s, p.constants)
		}
	}()
	l.setPadding(p)
	for _, a := range l.Arguments {
		if !a.Variable {
			p.ragged = append(p.ragged, a.Ragged)
		}
	}
	for i, v := range distributed {
		if v != nil && l.Training && f.opts.Store != nil { // its optimizer state has the variable's layout
			s.Variables(f.opts.Store).registerProxy(savedstep.ProxyPath(m.Arguments[i].Name), v)
		}
	}
	for i, a := range m.Arguments {
		p.donate = append(p.donate, a.Donated)
		if a.IsConstant {
			c, err := s.constants.acquire(s, shapes.Make(a.DType, a.LocalDims...), l.Arguments[i].Constant)
			if err != nil {
				return nil, err
			}
			p.constants, p.variables = append(p.constants, c), append(p.variables, c.Variable)
			continue
		}
		if !l.Arguments[i].Variable || distributed[i] != nil {
			p.variables = append(p.variables, distributed[i])
			continue
		}
		v, err := l.storedVariable(ctx, i)
		if err != nil {
			return nil, err
		}
		if slices.Contains(distributed, v) {
			return nil, l.fail(savedstep.Mismatch{Problem: savedstep.BadVariable, Variable: a.Name,
				Detail: "stepfile.Options.Variables gives the store's variable for another one",
				Hint:   "give a distributed variable"})
		}
		p.variables = append(p.variables, v)
	}
	if err := f.checkRules(p.variables); err != nil {
		return nil, err
	}
	start := time.Now()
	x, err := s.runtime.System.Client().Load(ctx, l.Code, pjrt.LoadOptions{})
	if err != nil {
		return nil, fault.Wrap("loading "+l.Name, err, "")
	}
	if err := checkProgram(x, m); err != nil {
		return nil, errors.Join(l.fail(savedstep.Mismatch{Problem: savedstep.Damaged, Err: err}), x.Close())
	}
	p.executable, p.compiling = x, time.Since(start)
	if p.rows, err = s.runtime.LaunchPartitions(p.executable); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return p, p.register()
}

// storedVariable returns the store variable that is an argument of the step.
func (l *stepLoader) storedVariable(ctx context.Context, argument int) (*Variable, error) {
	a, store := l.Module.Arguments[argument], l.f.opts.Store
	fail := func(hint, format string, args ...any) (*Variable, error) {
		return nil, l.fail(savedstep.Mismatch{Problem: savedstep.BadVariable, Variable: a.Name, Detail: fmt.Sprintf(format,
			args...), Hint: hint})
	}
	if store == nil {
		return fail("give the store that holds it", "there is no store")
	}
	vars := l.f.strategy.Variables(store)
	ctx, done, err := vars.lock(ctx, "loading "+l.Name+": ")
	if err != nil {
		return nil, err
	}
	defer done()
	if store.GetVariable(a.Name) == nil {
		if !l.Arguments[argument].ZeroIfMissing {
			return fail("load a checkpoint or build the model before", "the store has no value of it")
		}
		fresh, err := store.CreateVariable(a.Name, tensors.FromShape(shapes.Make(a.DType, a.LocalDims...)))
		if err != nil {
			return nil, err
		}
		fresh.SetTrainable(false)
	}
	v, err := vars.findOrAddVariable(a.Name)
	if err == nil {
		err = initVariables(ctx, v)
	}
	switch {
	case err != nil:
		return nil, err
	case v.dtype != a.DType || !slices.Equal(v.shape, a.ReplicaShard.UnshardedDims(a.LocalDims)):
		return fail("give the store of the model that was compiled", "it is %s%v in the store and %s%v in the step",
			v.dtype, v.shape, a.DType, a.ReplicaShard.UnshardedDims(a.LocalDims))
	case v.replicaShard != a.ReplicaShard:
		return fail("give the rules that the step was compiled with", "it is %s here and %s in the step",
			v.replicaShard, a.ReplicaShard)
	case !v.annotation.SamePlacement(a.Annotation, v.strategy.axes):
		return fail("give the rules that the step was compiled with",
			"it is laid out as %s here and as %s in the step", v.annotation, a.Annotation)
	}
	return v, nil
}

// checkProgram returns an error if the step file describes other arguments and results than the
// program has.
func checkProgram(x *pjrt.LoadedExecutable, m *spmd.Module) error {
	compare := func(what string, placed []spmd.ShardedTensor, types []pjrt.TensorType) error {
		if len(placed) != len(types) {
			return fmt.Errorf("the file says %d %ss, the program has %d", len(placed), what, len(types))
		}
		for i, p := range placed {
			wire, err := number.PluginDType(p.DType)
			if err != nil {
				return err
			}
			// XLA's partitioner does not split results without elements.
			dims := p.ShardDims
			if slices.Contains(dims, 0) {
				dims = p.GlobalDims
			}
			if wire != types[i].DType || !slices.Equal(p.ShardDims, types[i].Dims) &&
				!slices.Equal(dims, types[i].Dims) {
				return fmt.Errorf("%s %d, %q, is %v%v in the file and %v%v in the program", what, i, p.Name, wire,
					p.ShardDims, types[i].DType, types[i].Dims)
			}
		}
		return nil
	}
	if err := compare("result", m.Results, x.Outputs()); err != nil {
		return err
	}
	if params, known := x.Parameters(); known {
		return compare("argument", m.Arguments, params)
	}
	return nil
}

// describeMismatch describes how the arguments of a call (got) differ from the arguments for which
// the step was compiled (want).
func describeMismatch(want, got []Value) savedstep.Mismatch {
	const loaded = "the step was loaded from a file: "
	misfit := func(hint, format string, args ...any) savedstep.Mismatch {
		return savedstep.Mismatch{Problem: savedstep.OtherArguments, Detail: loaded + fmt.Sprintf(format, args...),
			Hint: hint}
	}
	const compiledFor = "give arguments like those that it was compiled for"
	if len(got) != len(want) {
		return misfit(compiledFor, "it takes %d arguments, not %d", len(want), len(got))
	}
	steps, err := stepsOf(got)
	if err != nil {
		return misfit(compiledFor, "%v", err)
	}
	switch wanted, _ := stepsOf(want); {
	case wanted == steps:
	case wanted == 0:
		return misfit("run it for each batch", "it is one step, not a loop of %d", steps)
	case steps == 0:
		return misfit("stack as many batches, with RunSteps or StackBatches", "it is a loop of %d steps", wanted)
	default:
		return misfit("stack as many batches", "it is a loop of %d steps, not of %d", wanted, steps)
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
			return misfit(compiledFor, "argument %d is %s, and the step takes %s", i, describe(v), describe(want[i]))
		}
	}
	return misfit(compiledFor, "it holds the step for other arguments")
}

// unequalShapes returns placeholder shapes of the replicas for a padded argument of a saved step.
// They differ from the padded shape in each dimension that has an index in sizes. Dimensions with
// the same index have the same placeholder.
func unequalShapes(shape, sizes []int) [][]int {
	real := slices.Clone(shape)
	for d, size := range sizes {
		if d < len(real) && size >= 0 {
			real[d] = -1 - size
		}
	}
	return [][]int{real}
}

func (l *stepLoader) setPadding(p *program) {
	argument := 0
	for i, a := range l.Arguments {
		if a.Variable {
			continue
		}
		p.padding.sizeIndices = append(p.padding.sizeIndices, a.Sizes)
		for d, size := range a.Sizes {
			if size == len(p.padding.sizes) && d < len(l.Module.Arguments[i].LocalDims) {
				p.padding.sizes = append(p.padding.sizes, paddedSize{argument, d, l.Module.Arguments[i].LocalDims[d]})
			}
		}
		argument++
	}
	if !slices.ContainsFunc(l.PaddedResults, func(dims []ragged.Dim) bool { return len(dims) > 0 }) {
		return
	}
	for i, dims := range l.PaddedResults {
		for _, dim := range dims { // the file may be damaged
			if len(dims) != len(l.Module.Results[i].LocalDims) || dim.Size < 0 ||
				dim.Size >= len(p.padding.sizes) || dim.Factor < 0 {
				dims = []ragged.Dim{}
			}
		}
		p.paddedResults = append(p.paddedResults, dims)
	}
}
