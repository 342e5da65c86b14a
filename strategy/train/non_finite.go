package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/enum"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// NonFinite says what a training step does when its loss or a gradient is not finite: a NaN or an
// infinity. The step decides in its program, from the loss and the gradients as all replicas
// average them, so that all replicas and processes decide alike. A step that is not taken leaves
// all variables as they were: the model's, the optimizer's, averages of layers, the state of random
// numbers and the variables of the strategy that the step writes. "Numbers that are not
// finite" in docs/deep-models.md says how this goes with loss scales and with package fit.
type NonFinite int

const (
	// Apply takes the step. Nothing is looked for, and it costs nothing.
	Apply NonFinite = iota
	// Skip does not take the step, and counts it: see [Step.NonFinite].
	Skip
	// Stop does not take the step, nor any after it, and Run returns a [*NonFiniteError]. Each Run
	// waits for its step to know; a loop of steps waits once.
	Stop
)

func (n NonFinite) known() bool { return n >= Apply && n <= Stop }

// String returns "apply", "skip" or "stop".
func (n NonFinite) String() string { return enum.Name(n, "apply", "skip", "stop") }

// NonFiniteSteps counts the steps of a training step since its state was new, or since
// [Step.ResetNonFinite].
type NonFiniteSteps struct {
	// Steps is the number of steps that ran, Skipped the number of those that were not taken. Steps
	// after a stop count in neither.
	Steps, Skipped int64
	// Last is the number of the last step that was not taken, counted from 1, or 0 if all steps
	// were taken. What names the first thing that was not finite in it, in the order of the store:
	// "the loss", or "the gradient of" a variable.
	Last int64
	What string
	// Stopped reports whether a step stopped the training.
	Stopped bool
}

// NonFiniteError reports that numbers which are not finite ended the training: a step stopped
// ([Stop]), or the hook fit.Finite ended a run.
type NonFiniteError struct {
	// Function is the step's name, Step its number, counted from 1.
	Function string
	Step     int64
	// What was not finite: "the loss", "the gradient of" a variable, or a metric of a run.
	What string
	// Applied says that the variables have the step's update. Otherwise they are those before the
	// step, and stay so until [Step.ResetNonFinite].
	Applied bool
}

// Error says at which step the training ended, and at what.
func (e *NonFiniteError) Error() string {
	if e.Applied {
		return errkind.Text("train: "+e.Function, fmt.Sprintf("%s is not finite after step %d", e.What, e.Step), nil,
			"go on from an earlier checkpoint with a smaller learning rate, or set Options.NonFinite")
	}
	return errkind.Text("train: "+e.Function, fmt.Sprintf("step %d was not taken, as %s is not finite", e.Step, e.What), nil,
		"the variables are those before it, call ResetNonFinite to go on")
}

// Kind returns InvalidArgumentError, that of TensorFlow's check_numerics.
func (e *NonFiniteError) Kind() errkind.Kind { return errkind.InvalidArgumentError }

// NonFinite returns how many steps were not taken because their loss or gradients were not finite,
// and what the last one was. It waits for the steps under way, and copies 32 bytes. The error
// matches errors.ErrUnsupported for a step whose [Options] do not ask for it. The counts are a
// variable of the store, "/non_finite/" and the step's name, and are saved with it.
func (t *Step) NonFinite(ctx context.Context) (NonFiniteSteps, error) {
	if err := t.counts(ctx, "NonFinite"); err != nil {
		return NonFiniteSteps{}, err
	}
	return t.guard.read(ctx, t.function)
}

// ResetNonFinite sets the counts to zero. A step that stopped goes on with the next Run. With
// several processes all of them call it.
func (t *Step) ResetNonFinite(ctx context.Context) error {
	if err := t.counts(ctx, "ResetNonFinite"); err != nil {
		return err
	}
	v, ok := t.inner.Lookup(t.guard.path)
	if !ok {
		return nil
	}
	return v.Assign(ctx, make([]int64, countElements))
}

// counts refuses an operation of a step that counts nothing, and one in a step's code.
func (t *Step) counts(ctx context.Context, op string) error {
	if err := strategy.RefuseTracing(ctx, op, fault.InsteadOfRunning); err != nil {
		return err
	}
	if t.guard == nil {
		return &errkind.Fault{Op: "train: " + t.name, Reason: "steps that are not finite are not counted",
			Hint: "set Options.NonFinite", Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	return t.inner.Check()
}

// The counting variable's elements.
const (
	countSteps = iota
	countSkipped
	countLast
	countWhat
	countElements
)
