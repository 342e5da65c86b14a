package stepfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Options say what a loaded step runs on. The zero value finds the step's variables by their names.
type Options struct {
	// Variables are distributed variables for the step, those of strategy.TPUStrategy.NewVariable,
	// by the names that the step was saved with: a variable with another name may take a place. For
	// a name that is missing here, Load looks among strategy.TPUStrategy.DistributedVariables; a
	// name that the step does not have is an error.
	Variables map[string]*strategy.Variable
	// SHA256 is the hash that the whole file must have, in hexadecimal digits, as sha256sum prints
	// it; an empty string accepts any file.
	SHA256 string
}

// Load reads a step that [Save] wrote and puts it on the devices, without tracing or compiling
// anything, as tf.saved_model.load gives back a function. The function runs for the arguments that the step was compiled for; for others it
// returns a [*strategy.TraceError] that wraps an [*Error] with [Arguments]. A loop of steps takes
// stacked values of as many steps, see [strategy.TPUStrategy.StackBatches].
//
// store holds the step's variables, with values: load a checkpoint or build the model before.
// Distributed variables, which [strategy.TPUStrategy.NewVariable] makes, are those of [Options], or
// else the strategy's own of the same names; the step reads and writes these variables from now on.
// They must be as they were when the step was saved: dtype, shape, synchronization, aggregation,
// local writes, annotation. The state of a training step's metrics is made where the strategy has
// none of its name.
//
// The package's documentation says who may have written the file. Load reads the whole file and
// checks that its parts are within bounds. Errors: [*Error], one joined for each distributed
// variable that does not fit, [*strategy.OptionError] for a rule of strategy.Options.Variables that
// reaches no variable, [strategy.ErrAheadOfTime], *pjrt.Error.
func Load(ctx context.Context, s *strategy.TPUStrategy, r io.Reader, store *model.Store, opts ...Options) (*strategy.Function, error) {
	f, _, err := load(ctx, s, r, store, opts)
	return f, err
}

// LoadTrain does what [Load] does, for a step that train.New made. [train.Step.RunSteps] runs a
// step that was saved as a loop.
func LoadTrain(ctx context.Context, s *strategy.TPUStrategy, r io.Reader, store *model.Store, opts ...Options) (*train.Step, error) {
	f, step, err := load(ctx, s, r, store, opts)
	if err != nil {
		return nil, err
	}
	if !trains(step) {
		return nil, &Error{Reason: NotAFile, Detail: step.Name + " is no training step", Hint: "use Load"}
	}
	return train.Of(f)
}

// LoadEvaluation does what [Load] does, for a step that train.NewEvaluation made.
func LoadEvaluation(ctx context.Context, s *strategy.TPUStrategy, r io.Reader, store *model.Store, opts ...Options) (*train.Evaluation, error) {
	f, step, err := load(ctx, s, r, store, opts)
	if err != nil {
		return nil, err
	}
	if !step.Metrics.Is() || step.Training {
		return nil, &Error{Reason: NotAFile, Detail: step.Name + " is no evaluation", Hint: "use Load or LoadTrain"}
	}
	return train.EvaluationOf(f)
}

// trains reports whether a step is one of package train.
func trains(step *saved.Step) bool { return step.Trains() && step.SplitBatch }

func load(ctx context.Context, s *strategy.TPUStrategy, r io.Reader, store *model.Store, opts []Options) (*strategy.Function, *saved.Step, error) {
	if s == nil || r == nil {
		return nil, nil, &errkind.Fault{Op: "stepfile: load", Reason: "the strategy or the reader is nil", Class: errkind.ValueError,
			Hint: "give a strategy of strategy.New and the opened file"}
	}
	m := inside.Of[machine](s)
	if err := m.Usable(ctx, "loading a step"); err != nil {
		return nil, nil, err
	}
	if len(opts) > 1 {
		return nil, nil, &errkind.Fault{Op: "stepfile: load", Reason: fmt.Sprintf("%d options", len(opts)), Hint: "give one", Class: errkind.ValueError}
	}
	o := append(slices.Clone(opts), Options{})[0]
	h, text, code, err := decode(r, o.SHA256)
	if err != nil {
		return nil, nil, err
	}
	target, err := m.Target(fail)
	if err != nil {
		return nil, nil, err
	}
	if err := h.fits(target); err != nil {
		return nil, nil, err
	}
	step, err := h.step(text, code)
	if err != nil {
		return nil, nil, &Error{Reason: Damaged, Err: err}
	}
	if axes := s.LogicalMesh(); !axes.Equal(step.Module.Logical) && namesAxes(step) {
		return nil, nil, &Error{Reason: Axes, Detail: fmt.Sprintf("%s, and the strategy has %s", step.Module.Logical, axes)}
	}
	variables, state, err := stateOf(s, step, o.Variables)
	if err != nil {
		return nil, nil, err
	}
	made := len(variables) > len(o.Variables) // the state was made for the step
	var f *strategy.Function
	found, err := distributed(s, step, variables)
	if err == nil {
		f, err = m.Load(ctx, store, step, found, fail)
	}
	if err != nil {
		if made {
			err = errors.Join(err, state.Close())
		}
		return nil, nil, err
	}
	if state != nil {
		inside.Of[function](f).SetMetrics(step.Metrics, state, made)
	}
	if trains(step) { // it looks for numbers that are not finite, if it was made to
		if _, err := train.Of(f); err != nil {
			return nil, nil, err
		}
	}
	return f, step, nil
}

// namesAxes reports whether a split of a step's arguments or results names axes.
func namesAxes(step *saved.Step) bool {
	named := func(p spmd.ShardedTensor) bool { return p.Annotation.Axes() != nil }
	return slices.ContainsFunc(step.Module.Arguments, named) || slices.ContainsFunc(step.Module.Results, named) ||
		slices.ContainsFunc(step.Layouts, func(a logical.Annotation) bool { return a.Axes() != nil })
}

// fits compares what a step was compiled for with what the strategy runs on.
func (h header) fits(here saved.Target) error {
	switch {
	case h.Plugin != here.Plugin:
		return &Error{Reason: Plugin, Detail: fmt.Sprintf("%q, and here is %q", h.Plugin, here.Plugin)}
	case h.Devices != here.Devices:
		return &Error{Reason: Devices, Detail: fmt.Sprintf("%q, and here are %q", h.Devices, here.Devices)}
	case h.Mesh != here.Mesh:
		return &Error{Reason: Topology, Detail: fmt.Sprintf("%s with mesh %v, and here is %s with mesh %v", h.Topology, h.Mesh, here.Topology, here.Mesh)}
	case !slices.EqualFunc(h.IDs, here.IDs, slices.Equal):
		return &Error{Reason: Assignment, Detail: fmt.Sprintf("%d replicas on devices %s, and here are %d on %s",
			len(h.IDs), some(h.IDs), len(here.IDs), some(here.IDs))}
	case !slices.EqualFunc(h.Coordinates, here.Coordinates, slices.Equal):
		return &Error{Reason: Topology, Detail: "the devices of its assignment are at other coordinates"}
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
