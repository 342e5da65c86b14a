package stepfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Options configure [Load]. The zero value finds the step's variables by name.
type Options struct {
	// Variables has distributed variables of strategy.TPUStrategy.NewVariable for the step, by the
	// names with which the step was saved. Their current names may differ. Names that are not in the
	// map are looked up in strategy.TPUStrategy.DistributedVariables. A name that the step does not
	// have is an error.
	Variables map[string]*strategy.Variable
	// SHA256 is the hash that the file must have, in hexadecimal digits as sha256sum prints it. An
	// empty string accepts any file.
	SHA256 string
}

// Load reads a step that [Save] wrote and loads it onto the devices without tracing or compilation,
// like tf.saved_model.load for a function. The function runs for the arguments for which the step
// was compiled. For other arguments it returns a [*strategy.TraceError] that wraps an [*Error] with
// [Arguments]. A loop of steps requires stacked values with the same number of steps, see
// [strategy.TPUStrategy.StackBatches].
//
// store must contain the step's variables with their values: load a checkpoint or build the model first.
// Load looks up distributed variables (of [strategy.TPUStrategy.NewVariable]) in [Options].Variables and
// then by name in the strategy. The loaded step reads and writes these variables. They must have the
// same dtype, shape, synchronization, aggregation, local writes and annotation as when the step was
// saved. If the strategy has no variable for the step's metrics, Load creates it.
//
// Load only files that you trust; see the package comment. Load reads the whole file and checks that its
// sections are consistent and within limits. Errors are [*Error], joined for all distributed variables
// that do not match, [*strategy.OptionError] for a rule of strategy.Options.Variables that matches no
// variable, [strategy.ErrAheadOfTime], and *pjrt.Error.
func Load(ctx context.Context, s *strategy.TPUStrategy, r io.Reader, store *model.Store,
	opts ...Options) (*strategy.Function, error) {
	f, _, err := load(ctx, s, r, store, opts)
	return f, err
}

// LoadTrain is like [Load], for a step of train.New. If the step was saved as a loop, use
// [train.Step.RunSteps] to run it.
func LoadTrain(ctx context.Context, s *strategy.TPUStrategy, r io.Reader, store *model.Store,
	opts ...Options) (*train.Step, error) {
	f, step, err := load(ctx, s, r, store, opts)
	if err != nil {
		return nil, err
	}
	if !isTrainingStep(step) {
		return nil, &Error{Reason: NotAFile, Detail: step.Name + " is no training step", Hint: "use Load"}
	}
	return train.StepOf(f)
}

// LoadEvaluation is like [Load], for a step of train.NewEvaluation.
func LoadEvaluation(ctx context.Context, s *strategy.TPUStrategy, r io.Reader, store *model.Store,
	opts ...Options) (*train.Evaluation, error) {
	f, step, err := load(ctx, s, r, store, opts)
	if err != nil {
		return nil, err
	}
	if !step.Metrics.IsSet() || step.Training {
		return nil, &Error{Reason: NotAFile, Detail: step.Name + " is no evaluation", Hint: "use Load or LoadTrain"}
	}
	return train.EvaluationOf(f)
}

// isTrainingStep reports whether package train created the step for training.
func isTrainingStep(step *savedstep.Step) bool { return step.IsTraining() && step.SplitBatch }

func load(ctx context.Context, s *strategy.TPUStrategy, r io.Reader, store *model.Store,
	opts []Options) (*strategy.Function, *savedstep.Step, error) {
	if s == nil || r == nil {
		return nil, nil, &errkind.Fault{Op: "stepfile: load", Reason: "the strategy or the reader is nil",
			Class: errkind.ValueError,
			Hint:  "give a strategy of strategy.New and the opened file"}
	}
	m := engine.Internal(s)
	if err := m.CheckUsable(ctx, "loading a step"); err != nil {
		return nil, nil, err
	}
	if len(opts) > 1 {
		return nil, nil, &errkind.Fault{Op: "stepfile: load", Reason: fmt.Sprintf("%d options", len(opts)),
			Hint: "give one", Class: errkind.ValueError}
	}
	o := append(slices.Clone(opts), Options{})[0]
	h, text, code, err := decode(r, o.SHA256)
	if err != nil {
		return nil, nil, err
	}
	target, err := m.Target(newError)
	if err != nil {
		return nil, nil, err
	}
	if err := h.checkTarget(target); err != nil {
		return nil, nil, err
	}
	step, err := h.decodeStep(text, code)
	if err != nil {
		return nil, nil, &Error{Reason: Damaged, Err: err}
	}
	if axes := s.LogicalMesh(); !axes.Equal(step.Module.LogicalMesh) && namesAxes(step) {
		return nil, nil, &Error{Reason: Axes, Detail: fmt.Sprintf("%s, and the strategy has %s",
			step.Module.LogicalMesh, axes)}
	}
	variables, state, err := findMetricState(s, step, o.Variables)
	if err != nil {
		return nil, nil, err
	}
	made := len(variables) > len(o.Variables) // findMetricState created the state
	var f *strategy.Function
	found, err := findDistributed(s, step, variables)
	if err == nil {
		f, err = m.LoadStep(ctx, store, step, found, newError)
	}
	if err != nil {
		if made {
			err = errors.Join(err, state.Close())
		}
		return nil, nil, err
	}
	if state != nil {
		engine.Internal(f).SetMetrics(step.Metrics, state, made)
	}
	if isTrainingStep(step) { // train.StepOf sets the guard for non-finite steps
		if _, err := train.StepOf(f); err != nil {
			return nil, nil, err
		}
	}
	return f, step, nil
}

// namesAxes reports whether an annotation of the step's arguments or results refers to mesh axes by
// name.
func namesAxes(step *savedstep.Step) bool {
	named := func(p spmd.ShardedTensor) bool { return p.Annotation.Axes() != nil }
	return slices.ContainsFunc(step.Module.Arguments, named) || slices.ContainsFunc(step.Module.Results, named) ||
		slices.ContainsFunc(step.Annotations, func(a logical.Annotation) bool { return a.Axes() != nil })
}

// checkTarget returns an error if the step was compiled for other devices, another plugin or
// another arrangement of replicas.
func (h header) checkTarget(here savedstep.Target) error {
	switch {
	case h.Plugin != here.Plugin:
		return &Error{Reason: Plugin, Detail: fmt.Sprintf("%q, and here is %q", h.Plugin, here.Plugin)}
	case h.Devices != here.Devices:
		return &Error{Reason: Devices, Detail: fmt.Sprintf("%q, and here are %q", h.Devices, here.Devices)}
	case h.Mesh != here.Mesh:
		return &Error{Reason: Topology, Detail: fmt.Sprintf("%s with mesh %v, and here is %s with mesh %v",
			h.Topology, h.Mesh, here.Topology, here.Mesh)}
	case !slices.EqualFunc(h.IDs, here.IDs, slices.Equal):
		return &Error{Reason: Assignment, Detail: fmt.Sprintf("%d replicas on devices %s, and here are %d on %s",
			len(h.IDs), formatIDs(h.IDs), len(here.IDs), formatIDs(here.IDs))}
	case !slices.EqualFunc(h.Coordinates, here.Coordinates, slices.Equal):
		return &Error{Reason: Topology, Detail: "the devices of its assignment are at other coordinates"}
	}
	return nil
}

// formatIDs formats the device ids of the first four replicas for an error.
func formatIDs(ids [][]int) string {
	if len(ids) > 4 {
		return fmt.Sprintf("%v and %d more", ids[:4], len(ids)-4)
	}
	return fmt.Sprint(ids)
}
