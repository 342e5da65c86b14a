package train

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Loss builds a replica's loss: a float scalar, the mean over the replica's batch. Some of GoMLX's
// losses, such as the cross-entropies, return a value for each example: take graph.ReduceAllMean of
// these values. For an uneven batch a mean is already that over the replica's real rows; see
// [Step.Run].
type Loss func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node

// Options configure a training step. The zero value works.
type Options struct {
	// Name is the step's name in errors and profiles; "train_step" if empty.
	Name string
	// Arguments say how the batch's tensors are split over the logical devices, also tensors that
	// are values of the strategy already; see strategy.FunctionOptions.Arguments.
	Arguments []logical.Annotation
	// LocalBatch says that host tensors are not the global batch but the rows of this process's
	// replicas; see strategy.FunctionOptions.LocalBatch.
	LocalBatch bool
	// NonFinite says what to do when the loss or a gradient is not finite. The zero value takes the
	// step.
	NonFinite NonFinite
	// Precision says in which dtypes the step keeps, computes and adds up; the zero value leaves
	// that to the loss function. The loss function gets the batch's floats, and its layers the
	// variables, in Precision.Compute; gradients and the optimizer are in Precision.Parameters. See
	// [precision.Policy.Forward], and [Step.LossScale] for its loss scale.
	Precision precision.Policy
}

// Step is a training step: loss, gradients, one all-reduce for each gradient, and the optimizer's
// update of the variables. It is safe for concurrent use.
type Step struct {
	function *strategy.Function
	name     string
	guard    *guard  // nil for steps that are always taken
	scaler   *scaler // of a dynamic loss scale; nil without one
}

// New returns a training step of the model that loss builds, over the variables of store. A run of
// the step does what TensorFlow's tf.keras.optimizers.Optimizer.apply_gradients does in a replica,
// with the gradients that it computes. The optimizer is any of GoMLX's that takes gradients (Adam
// and its kin, SGD); for another optimizer the first Run returns an error.
//
// The step trains the trainable variables that the loss uses: those of the store, and those of
// [strategy.TPUStrategy.NewVariable] that the loss reads with [strategy.ReplicaContext.Read], if
// they are floats and mirrored. The optimizer's state for the latter, such as moments, is in the
// store below "/distributed", laid out like these variables. A trainable variable that is
// [strategy.OnRead] is an error of kind ValueError.
//
// Gradients and loss are averaged over the replicas, so that a global batch gives the step that one
// device would take on it, up to rounding.
//
// As in GoMLX's trainer, the terms that the layers' regularizers add (parameters such as
// regularizer.ParamL2, train.AddRegularizationLoss) are part of the loss, and the updates that
// layers ask for after each step (train.AddPerStepUpdateGraphFn) are made.
func New(s *strategy.TPUStrategy, store *model.Store, opt optimizer.Interface, loss Loss, opts ...Options) *Step {
	var o Options
	if len(opts) > 0 {
		o = opts[0]
	}
	if o.Name == "" {
		o.Name = "train_step"
	}
	t := &Step{name: o.Name, guard: newGuard(o.NonFinite, o.Name)}
	stages := []stage{forward(store, loss, o.Precision)}
	scaler := newScaler(o.Precision, o.Name)
	if scaler == nil {
		stages = append(stages, backward(opt), reduce(o.Precision))
	} else {
		stages = append(stages, scaler.multiply, backward(opt), reduce(o.Precision), scaler.divide)
		if scaler.Dynamic() {
			t.scaler = scaler
			stages = append(stages, scaler.judge(t.guard != nil))
		}
	}
	if t.guard != nil {
		stages = append(stages, t.guard.decide)
	}
	stages = append(stages, update(opt), settle)
	f := strategy.FunctionOptions{
		Name: o.Name, Store: store, Training: true, Arguments: o.Arguments, SplitBatch: true, LocalBatch: o.LocalBatch, PadRagged: true,
	}
	if t.guard != nil {
		t.function = s.Machine().TrainingFunction(build(stages), f, t.guard)
	} else {
		t.function = s.Machine().TrainingFunction(build(stages), f, nil)
	}
	return t
}

// Of returns a function from a step file as the training step that it is. For another function it
// returns an error of kind ValueError; stepfile.LoadTrain calls it.
func Of(f *strategy.Function) (*Step, error) {
	m := f.Machine()
	from := m.Loaded()
	if from == nil || !from.Trains() || !from.SplitBatch {
		return nil, &errkind.Fault{Op: "train: of a function", Reason: "it is no training step of a file",
			Hint: "make the step with New, or load one with stepfile.LoadTrain", Class: errkind.ValueError}
	}
	t := &Step{function: f, name: from.Name}
	if held, ok := m.Guard().(*guard); ok {
		t.guard = held
	} else if t.guard = newGuard(NonFinite(from.Guard.Mode), from.Name); t.guard != nil {
		t.guard.names = from.Guard.Gradients
		m.SetGuard(t.guard)
	}
	return t, nil
}

// Run takes one training step on a global batch and returns its loss, averaged over the replicas.
// The arguments become the parameter in of the [Loss], one tensor each. A host tensor is cut along
// dimension 0 among the replicas and copied, as in [strategy.TPUStrategy.Mirror]; a
// *[strategy.PerReplica] holds the replicas' batches as they are.
//
// A batch that does not divide among the replicas is cut as TensorFlow cuts it: of 3 rows 2
// replicas receive 2 and 1, of 1 row they receive 1 and none. The batch is padded, and the step
// leaves the padding out, as strategy.FunctionOptions.PadRagged says. Each replica's loss and
// gradients are weighted by its rows, so that they are the means over the rows of the whole batch.
// The averages of layers, such as those of a batch normalisation, are weighted likewise, and a
// replica without rows leaves its own states as they are. Such a batch, and a value whose replicas
// have different rows, has a program of its own; even batches keep theirs. The loss must be a mean
// over rows; a sum would be weighted in the same way. With several processes batches must divide.
//
// Run returns when the work is under way. The loss belongs to the step, and the next Run overwrites
// it, so read it before the next Run if it is wanted: reading waits for the step. If another
// goroutine reads the loss at that moment, the next Run leaves it to that goroutine and closes it.
//
// With several processes each passes the whole batch, or its own rows if [Options].LocalBatch is
// set. Errors: [*strategy.ArgumentError] for an argument, [*strategy.TraceError] for the step,
// [*NonFiniteError] for a step that stopped, [strategy.ErrClosed], and those of the compiler for a
// new signature. After an error no step was taken.
func (t *Step) Run(ctx context.Context, batch ...any) (*strategy.Mirrored, error) {
	results, err := t.function.Machine().RunResident(ctx, batch)
	if err != nil {
		return nil, err
	}
	return results[0].(*strategy.Mirrored), nil
}

// RunSteps takes a training step on each of the batches, in order, in one launch: it copies the
// batches to the devices and runs a loop there. It leaves the variables as, and returns the last
// step's loss that, as many calls of Run would. A loop is compiled for each number of steps.
func (t *Step) RunSteps(ctx context.Context, batches ...[]any) (*strategy.Mirrored, error) {
	results, err := t.function.Machine().RunSteps(ctx, batches)
	if err != nil {
		return nil, err
	}
	return results[0].(*strategy.Mirrored), nil
}

// Compiled returns the compiled step for batches like this one; see [strategy.Function.Compiled].
func (t *Step) Compiled(ctx context.Context, batch ...any) (*strategy.Compiled, error) {
	return t.function.Compiled(ctx, batch...)
}

// Lowered traces and lowers the step for batches like this one, without compiling it.
func (t *Step) Lowered(ctx context.Context, batch ...any) (*module.Module, error) {
	return t.function.Lowered(ctx, batch...)
}

// Bind fixes the step's batch, for a loop over resident data; see [strategy.Bound].
func (t *Step) Bind(ctx context.Context, batch ...any) (*strategy.Bound, error) {
	return t.function.Bind(ctx, batch...)
}

// wrong panics with what is wrong with the code of a step; its trace returns the error.
func wrong(class errkind.Kind, hint, reason string, args ...any) {
	panic(&errkind.Fault{Op: "train", Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: class})
}
