package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// Loss builds a replica's loss: a float scalar, the mean over the replica's rows. Some of GoMLX's
// losses, such as the cross-entropies, return a value for each example: return [graph.ReduceAllMean]
// of these values. For an uneven batch the mean is over the replica's real rows; see [Step.Run].
//
// Where rows have different weights, such as texts with different numbers of tokens that count, a mean
// for each replica is wrong: [Weighted] returns the loss of a function that returns a sum and a weight.
type Loss func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node

// Options configure a training step, or an evaluation: see [NewEvaluation]. The zero value works.
type Options struct {
	// Name is the step's name in errors and profiles; "train_step" if empty.
	Name string
	// Arguments say how the batch's tensors are split over the logical devices, also tensors that
	// are values of the strategy already; see strategy.FunctionOptions.Arguments.
	Arguments []logical.Annotation
	// LocalBatch says that host tensors are not the global batch but the rows of this process's
	// replicas; see strategy.FunctionOptions.LocalBatch.
	LocalBatch bool
	// UnequalRows allows the batch's tensors to have different numbers of rows; see
	// strategy.FunctionOptions.UnequalRows.
	UnequalRows bool
	// MirroredRandomNumbers makes all replicas draw the same random numbers, such as dropout masks,
	// each for its own rows. Without it each replica draws its own; see package strategy.
	MirroredRandomNumbers bool
	// NonFinite says what to do when the loss or a gradient is not finite. The zero value takes the
	// step.
	NonFinite NonFinite
	// Precision says in which dtypes the step keeps, computes and adds up; the zero value leaves
	// that to the loss function. The loss function gets the batch's floats, and its layers the
	// variables, in Precision.Compute; gradients and the optimizer are in Precision.Parameters. A model
	// over integers has to call [precision.Compute]: a policy that reaches no operation is an error. See
	// [precision.Policy.Forward], and [Step.LossScale] for its loss scale.
	Precision precision.Policy
	// ClipNorm bounds the global norm of the gradients: the root of the sum of the squares of all
	// elements of the mean gradients of all trained variables. If the norm is greater, all gradients
	// are multiplied by ClipNorm over the norm, as tf.clip_by_global_norm does; 0 leaves them as
	// they are. The norm is of unscaled gradients, whole ones and those that replicas share out
	// (logical.Share), and is computed in float32 at least. It costs one all-reduce of a
	// number where replicas have parts of gradients, otherwise none. A norm that is not finite
	// counts as a gradient that is not, for NonFinite and for a dynamic loss scale: the step is not
	// taken. Without these all gradients become NaN, as in TensorFlow.
	ClipNorm float64
	// Norms adds the metrics "gradient_norm", the global norm of the gradients before they are
	// clipped, and "parameter_norm", that of the trained variables after the update.
	Norms bool
	// UpdateNorm adds the metric "update_norm", the global norm of what the update changed. Until it
	// is computed a step has the old values of the variables beside the new ones.
	UpdateNorm bool
	// LearningRate says the optimizer's learning rate by the number of steps that were taken, and
	// adds the metric "learning_rate". The zero value leaves the rate to the optimizer. The rate is
	// computed on the devices, from the count that GoMLX's optimizers keep in the store,
	// "/global_step": it is part of checkpoints, and a step that is not taken does not count. The
	// rate of each step is in the variable "/optimizers/learning_rate" afterwards. Refused with an
	// error of kind ValueError: an optimizer that changes its rate with the steps by itself, such as
	// SGD without WithDecay(false), and a loss function that sets the rate, such as by GoMLX's
	// cosineschedule.
	LearningRate schedule.Schedule
	// Metrics are accumulated on the devices, each replica for its own rows; [Step.Metrics] reads
	// them.
	Metrics []Metric
	// Accumulate is the number of microbatches into which the step cuts each replica's rows. It takes
	// them one after another, in a loop of the program, and adds up the gradients, so that it needs
	// the memory of the activations of one; the gradients cross the replicas once, after the loop.
	// Loss, gradients and update are those of the whole batch, up to rounding. 0 and 1 take the rows
	// at once. The package comment says what the loss function sees.
	Accumulate int
	// Freeze are regular expressions, as logical.Match takes them. The step does not train variables
	// whose path one of them matches, nor those for whose path FreezeIf returns true: it computes no
	// gradients for them, and the optimizer does not see them. A stack of layers of package loop is
	// one variable. What freezes no trainable variable of the loss is an error of kind ValueError,
	// and so is what freezes all. Variables keep their place on the devices, also shared out ones.
	Freeze   []string
	FreezeIf func(path string) bool
	// Average, between 0 and 1, is the decay of moving averages of the trained variables, which each
	// step that is taken moves: average = Average*average + (1-Average)*variable, with the variable
	// as the step leaves it. As in Keras (use_ema), the averages begin with the variables after the
	// first step. 0 keeps none. They are variables of the store, "/averages/", the step's name and
	// the variable's path, lie on the devices as the optimizer's state does, and are part of
	// checkpoints; those of half precision are in float32. [Averaged] computes with them, and
	// [Step.SwapAverages] exports them.
	Average float64
	// AverageWarmUp lets the averages follow the variables faster at first: after u updates the decay
	// is the smaller of Average and (1+u)/(10+u), as in TensorFlow's
	// tf.train.ExponentialMovingAverage with num_updates.
	AverageWarmUp bool
}

// function describes the step's function, without training.
func (o *Options) function(store *model.Store) strategy.FunctionOptions {
	return strategy.FunctionOptions{Name: o.Name, Store: store, Arguments: o.Arguments, SplitBatch: true, LocalBatch: o.LocalBatch,
		UnequalRows: o.UnequalRows, Padding: strategy.MaskPadding, MirroredRandomNumbers: o.MirroredRandomNumbers}
}

// Step is a training step: loss, gradients, one all-reduce for each gradient, and the optimizer's
// update of the variables. It is safe for concurrent use.
type Step struct {
	function *strategy.Function
	inner    function // of it
	name     string
	guard    *guard  // nil for steps that are always taken
	scaler   *scaler // of a dynamic loss scale; nil without one
	metrics  *accumulator
	swap     func() *strategy.Function // see SwapAverages; nil for a step that is known to have no averages
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
//
// Errors: one of kind ValueError for a part that is missing or options that say nothing, and with
// metrics those of [strategy.TPUStrategy.NewVariable].
func New(s *strategy.TPUStrategy, store *model.Store, opt optimizer.Interface, loss Loss, o Options) (*Step, error) {
	freeze, err := o.freezer()
	if err := cmp.Or(parts(s, store, loss, o.Arguments), gradients(opt), err, o.check()); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "train_step"
	}
	t := &Step{name: o.Name, guard: newGuard(o.NonFinite, o.Name)}
	if t.metrics, err = newAccumulator(s, o.Name, o.Metrics, o.gauges()); err != nil {
		return nil, err
	}
	var stages []stage
	if t.metrics != nil {
		stages = append(stages, t.metrics.begin)
	}
	scaler := newScaler(o.Precision, o.Name)
	each := []stage{forward(loss, o.Precision), weigh} // for each microbatch
	if freeze != nil {
		stages, each = append(stages, freeze.begin), append(each, freeze.check)
	}
	if scaler != nil {
		each = append(each, scaler.multiply)
	}
	each = append(each, backward)
	if o.Accumulate > 1 {
		if scaler != nil {
			stages = append(stages, scaler.begin)
		}
		if t.metrics != nil {
			each = append(each, observeRows)
		}
		stages = append(stages, accumulate(o.Accumulate, o.Precision, each))
	} else {
		stages = append(stages, each...)
	}
	stages = append(stages, reduce(o.Precision))
	if scaler != nil {
		stages = append(stages, scaler.divide)
	}
	if o.ClipNorm != 0 {
		stages = append(stages, measure)
	}
	if scaler != nil && scaler.Dynamic() {
		t.scaler = scaler
		stages = append(stages, scaler.judge(t.guard != nil))
	}
	if t.guard != nil {
		stages = append(stages, t.guard.decide)
	}
	if o.ClipNorm != 0 {
		stages = append(stages, clip(o.ClipNorm))
	}
	if o.LearningRate.Is() {
		stages = append(stages, schedules(opt, o.LearningRate))
	}
	if o.UpdateNorm {
		stages = append(stages, before)
	}
	stages = append(stages, update(opt), settle)
	if o.Average != 0 {
		stages = append(stages, o.average)
		t.swap = swaps(s, store, o.Name)
	}
	if t.metrics != nil {
		stages = append(stages, o.observe)
	}
	f := o.function(store)
	f.Training = true
	var g launchGuard
	if t.guard != nil {
		g = t.guard
	}
	t.function = innerStrategy(s).TrainingFunction(build(stages), f, g, o.Accumulate, paddedRows(s, o.Accumulate))
	t.inner = innerFunction(t.function)
	if t.metrics != nil {
		t.inner.SetMetrics(t.metrics.saved(), t.metrics.state, true)
	}
	return t, nil
}

// parts returns the error of a step that lacks one, or whose arguments cannot be split so, whatever
// their shapes.
func parts(s *strategy.TPUStrategy, store *model.Store, loss Loss, arguments []logical.Annotation) error {
	switch {
	case s == nil:
		return invalid("give a strategy", "there is none: it is nil")
	case store == nil:
		return invalid("give a model.NewStore()", "there is no store of variables: it is nil")
	case loss == nil:
		return invalid("give a function that builds one", "there is no loss function: it is nil")
	}
	for i, a := range arguments {
		if err := a.ValidateOn(s.LogicalMesh(), fmt.Sprintf("argument %d", i), a.PartsOn(s.LogicalMesh())); err != nil {
			return &errkind.Fault{Op: "train: Options.Arguments", Err: err}
		}
	}
	return nil
}

// gradients returns the error of an optimizer that takes none.
func gradients(opt optimizer.Interface) error {
	if _, ok := opt.(gomlxtrain.OptimizeWithGradients); !ok {
		return invalid("use one of the Adam family or SGD", "optimizer %T does not take gradients", opt)
	}
	return nil
}

// check returns the error of options that say nothing.
func (o *Options) check() error {
	switch clip, decay := o.ClipNorm, o.Average; {
	case !o.NonFinite.known():
		return invalid("use Apply, Skip or Stop", "Options.NonFinite is %s", o.NonFinite)
	case clip < 0 || math.IsNaN(clip) || clip > math.MaxFloat32:
		return invalid("give a positive number, or 0 for gradients as they are", "Options.ClipNorm is %v", clip)
	case o.Accumulate < 0:
		return invalid("use 0 for the whole batch at once, or the number of microbatches", "Options.Accumulate is %d", o.Accumulate)
	case decay != 0 && !(decay > 0 && decay < 1):
		return invalid("give a decay between 0 and 1, such as 0.999, or 0 for no averages", "Options.Average is %v", decay)
	case o.AverageWarmUp && decay == 0:
		return invalid("set Options.Average, such as to 0.999", "Options.AverageWarmUp is set without a decay")
	case o.LearningRate.Is():
		if err := o.LearningRate.Validate(); err != nil {
			return err
		}
	}
	return cmp.Or(o.Precision.Validate(), checkMetrics(o.Metrics, o.gauges()))
}

// observe is the stage that gives the metrics what the step knows, once all is updated.
func (o *Options) observe(p *pass) {
	if o.Accumulate < 2 {
		observeRows(p)
	}
	p.recorder.observe(p.meanLoss(), p.weight)
	norms := o.norms(p)
	norms[learningRate] = p.rate
	var values []*graph.Node
	for _, name := range o.gauges() {
		values = append(values, norms[name])
	}
	if len(values) > 0 {
		p.recorder.set(len(o.Metrics), values)
	}
}

// Of returns a function from a step file as the training step that it is. For another function it
// returns an error of kind ValueError; stepfile.LoadTrain calls it.
func Of(f *strategy.Function) (*Step, error) {
	m := innerFunction(f)
	from := m.Loaded()
	if from == nil || !from.Trains() || !from.SplitBatch {
		return nil, &errkind.Fault{Op: "train: of a function", Reason: "it is no training step of a file",
			Hint: "make the step with New, or load one with stepfile.LoadTrain", Class: errkind.ValueError}
	}
	if mode := NonFinite(from.Guard.Mode); !mode.known() {
		return nil, &errkind.Fault{Op: "train: of a function", Reason: fmt.Sprintf("its way with steps that are not finite is %s", mode),
			Hint: "compile the step again with this version", Class: errkind.DataLossError}
	}
	t := &Step{function: f, inner: m, name: from.Name, metrics: accumulatorOf(f)}
	if m.Store() != nil {
		t.swap = swaps(f.Strategy(), m.Store(), from.Name)
	}
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
// leaves the padding out, as [strategy.MaskPadding] says. Each replica's loss and
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
	results, err := t.inner.RunResident(ctx, batch)
	if err != nil {
		return nil, err
	}
	return results[0].(*strategy.Mirrored), nil
}

// RunSteps takes a training step on each of the batches, in order, in one launch: it copies the
// batches to the devices and runs a loop there. It leaves the variables as, and returns the last
// step's loss that, as many calls of Run would. A loop is compiled for each number of steps.
func (t *Step) RunSteps(ctx context.Context, batches ...[]any) (*strategy.Mirrored, error) {
	results, err := t.inner.RunSteps(ctx, batches)
	if err != nil {
		return nil, err
	}
	return results[0].(*strategy.Mirrored), nil
}

// Compiled returns the compiled step for batches like this one; see [strategy.Function.Compiled].
func (t *Step) Compiled(ctx context.Context, batch ...any) (*strategy.CompiledStep, error) {
	return t.function.Compiled(ctx, batch...)
}

// Lowered traces and lowers the step for batches like this one, without compiling it.
func (t *Step) Lowered(ctx context.Context, batch ...any) (*spmd.Module, error) {
	return t.function.Lowered(ctx, batch...)
}

// Bind fixes the step's batch, for a loop over resident data; see [strategy.Binding].
func (t *Step) Bind(ctx context.Context, batch ...any) (*strategy.Binding, error) {
	return t.function.Bind(ctx, batch...)
}

// Close frees what the step has on the devices: its compiled programs, the batch and the loss that
// it keeps for the next run, and its metrics, unless they are those of a step file's variable that
// was there before. What belongs to the store stays: the variables, the optimizer's state, averages,
// and the counts of [Step.NonFinite] and [Step.LossScale]. Calls after Close return an error that
// matches [strategy.ErrClosed]. Close waits for a Run under way. A second Close does nothing. The
// strategy's Close closes the step, too.
func (t *Step) Close() error {
	if t == nil {
		return nil
	}
	err := t.function.Close()
	if t.swap != nil {
		err = errors.Join(err, t.swap().Close())
	}
	return err
}

// invalid is the error of a step that is put together wrongly.
func invalid(hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "train", Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}

// wrong panics with what is wrong with the code of a step; its trace returns the error.
func wrong(hint, reason string, args ...any) { panic(invalid(hint, reason, args...)) }
