package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/enum"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// NonFinite selects the behavior of a training step whose loss or gradients contain a NaN or an infinity.
// The step checks the loss and the gradients after they are averaged over all replicas, on the devices,
// so that all replicas and processes make the same decision. If the update is not applied, all variables
// keep their values: those of the model and the optimizer, moving averages of layers, random number
// state, and the variables of the strategy that the step writes. The section "Numbers that are not
// finite" in docs/deep-models.md describes the interaction with loss scales and package fit.
type NonFinite int

const (
	// Apply applies every update. There is no check and no cost.
	Apply NonFinite = iota
	// Skip discards the update and counts the step: see [Step.NonFinite].
	Skip
	// Stop discards the update and all later updates, and Run returns a [*NonFiniteError]. Each Run
	// waits for its step. A loop of steps waits once, at its end.
	Stop
)

func (n NonFinite) isKnown() bool { return n >= Apply && n <= Stop }

// String returns "apply", "skip" or "stop".
func (n NonFinite) String() string { return enum.Name(n, "apply", "skip", "stop") }

// NonFiniteSteps has the numbers of steps that a training step has executed, since its state was
// created or since [Step.ResetNonFinite].
type NonFiniteSteps struct {
	// Steps is the number of steps that ran. Skipped is the number of steps among them whose update
	// was not applied. Steps after a stop are not counted.
	Steps, Skipped int64
	// Last is the number of the last skipped step, counted from 1, or 0 if no step was skipped.
	Last int64
	// What is the first value of step Last that was not finite: "the loss", "the gradient of" a
	// variable, or "the norm of the gradients". Variables are in the order of the store.
	What string
	// Stopped reports whether a step stopped the training.
	Stopped bool
}

// NonFiniteError reports that a non-finite value ended the training. Either a step stopped because
// of the mode [Stop], or the hook fit.TerminateOnNaN ended a run.
type NonFiniteError struct {
	// Function is the step's name, and Step its number, counted from 1.
	Function string
	Step     int64
	// What is the value that was not finite: "the loss", "the gradient of" a variable, "the norm of
	// the gradients", or a metric of a run.
	What string
	// Applied reports whether the variables include the step's update. Otherwise they have their
	// values from before the step, and keep them until [Step.ResetNonFinite].
	Applied bool
}

// Error returns a message with the step and the value that was not finite.
func (e *NonFiniteError) Error() string {
	if e.Applied {
		return errkind.Format("train: "+e.Function, fmt.Sprintf("%s is not finite after step %d", e.What, e.Step), nil,
			"go on from an earlier checkpoint with a smaller learning rate, or set Options.NonFinite")
	}
	return errkind.Format("train: "+e.Function, fmt.Sprintf("step %d was not taken, as %s is not finite", e.Step,
		e.What), nil,
		"the variables are those before it, call ResetNonFinite to go on")
}

// Kind returns InvalidArgumentError, the kind of TensorFlow's check_numerics error.
func (e *NonFiniteError) Kind() errkind.Kind { return errkind.InvalidArgumentError }

// NonFinite returns the number of steps whose update was not applied because the loss or a gradient
// was not finite, and describes the last one. It waits for running steps and copies 32 bytes. For a
// step without [Options].NonFinite the error matches errors.ErrUnsupported. The counts are a
// variable of the store, "/non_finite/" and the step's name, and are saved with the store.
func (t *Step) NonFinite(ctx context.Context) (NonFiniteSteps, error) {
	if err := t.checkCounts(ctx, "NonFinite"); err != nil {
		return NonFiniteSteps{}, err
	}
	return t.guard.readCounts(ctx, t.function)
}

// ResetNonFinite sets the counts to zero. After it, a stopped step resumes with the next Run. With
// several processes, all must call it.
func (t *Step) ResetNonFinite(ctx context.Context) error {
	if err := t.checkCounts(ctx, "ResetNonFinite"); err != nil {
		return err
	}
	v, ok := engine.Internal(t.function).LookupVariable(t.guard.path)
	if !ok {
		return nil
	}
	return v.Assign(ctx, make([]int64, countElements))
}

// checkCounts returns an error if the step does not count non-finite steps or is closed, or if it
// is called in a traced step function.
func (t *Step) checkCounts(ctx context.Context, op string) error {
	if err := strategy.RefuseTracing(ctx, op, fault.InsteadOfRunning); err != nil {
		return err
	}
	if t.guard == nil {
		return &errkind.Fault{Op: "train: " + t.name, Reason: "steps that are not finite are not counted",
			Hint: "set Options.NonFinite", Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	return engine.Internal(t.function).CheckOpen()
}

// Elements of the variable with the counts.
const (
	countSteps = iota
	countSkipped
	countLast
	countWhat
	countElements
)
