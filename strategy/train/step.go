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
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// Loss builds a replica's loss: a float scalar, the mean over the replica's rows. in has the tensors of
// the batch. Some of GoMLX's losses, such as the cross-entropies, return a value for each example: return
// [graph.ReduceAllMean] of these values. Padding rows of an uneven batch do not count; see [Step.Run].
//
// If rows have different weights, such as texts with different numbers of unmasked tokens, a mean
// for each replica is wrong. Use [Weighted] with a function that returns a sum and a weight.
type Loss func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node

// Options configure a training step, or an evaluation: see [NewEvaluation]. The zero value is valid.
type Options struct {
	// Name is the step's name in errors and profiles. The default is "train_step".
	Name string
	// Arguments specify how the batch's tensors are sharded over the logical devices, including
	// tensors that are already values of the strategy; see strategy.FunctionOptions.Arguments.
	Arguments []logical.Annotation
	// LocalBatch reports that host tensors have only the rows of this process's replicas, instead
	// of the global batch; see strategy.FunctionOptions.LocalBatch.
	LocalBatch bool
	// UnequalRows allows the batch's tensors to have different numbers of rows; see
	// strategy.FunctionOptions.UnequalRows.
	UnequalRows bool
	// MirroredRandomNumbers makes all replicas draw the same random numbers, such as dropout masks.
	// By default each replica draws its own; see package strategy.
	MirroredRandomNumbers bool
	// NonFinite selects the behavior if the loss or a gradient is not finite. The default is Apply.
	NonFinite NonFinite
	// Precision selects the dtypes of variables, computations and sums; the zero value leaves them
	// to the loss function. The loss function receives the batch's floats, and its layers the
	// variables, in Precision.Compute. Gradients and the optimizer use Precision.Parameters. A
	// model with integer inputs must call [precision.Compute]: a policy that affects no operation
	// is an error. See [precision.Policy.Forward], and [Step.LossScale] for the loss scale.
	Precision precision.Policy
	// ClipNorm is the maximum of the gradients' global norm: the square root of the sum of the
	// squares of all elements of the mean gradients of all trained variables. If the norm is
	// greater, all gradients are multiplied by ClipNorm/norm, like tf.clip_by_global_norm. 0
	// disables clipping. The norm is computed from unscaled gradients in at least float32, over
	// replicated and sharded gradients (logical.MatchState). It costs one all-reduce of a scalar if
	// gradients are sharded over replicas, and no communication otherwise. A norm that is not
	// finite counts as a non-finite gradient for NonFinite and for a dynamic loss scale, and the
	// update is not applied. Without these options all gradients become NaN, as in TensorFlow.
	ClipNorm float64
	// Norms adds the metrics "gradient_norm", the global norm of the gradients before clipping, and
	// "parameter_norm", the global norm of the trained variables after the update.
	Norms bool
	// UpdateNorm adds the metric "update_norm", the global norm of the change of the trained
	// variables. The step keeps the old values of the variables in memory until it is computed.
	UpdateNorm bool
	// LearningRate is the optimizer's learning rate as a function of the number of applied steps. It
	// adds the metric "learning_rate". With the zero value the optimizer sets the rate. The rate is
	// computed on the devices from the count of GoMLX's optimizers in the store, "/global_step". The
	// count is part of checkpoints and does not include steps whose update was not applied. After a
	// step its rate is in the variable "/optimizers/learning_rate". Two cases return an error of kind
	// ValueError: an optimizer that changes its rate with the steps itself, such as SGD without
	// WithDecay(false), and a loss function that sets the rate, for example by GoMLX's cosineschedule.
	LearningRate schedule.Schedule
	// Metrics are accumulated on the devices. [Step.Metrics] reads them.
	Metrics []Metric
	// Accumulate is the number of microbatches into which the step splits each replica's rows. The
	// step processes them in a loop on the devices and sums the gradients, so that it needs the
	// activation memory of one microbatch. The gradients are reduced over the replicas once, after
	// the loop. Loss, gradients and update equal those of the whole batch, up to rounding. 0 and 1
	// process all rows at once. The package comment describes the arguments of the loss function.
	Accumulate int
	// Freeze are regular expressions with the syntax of logical.Match. The step does not train
	// variables whose path matches one of them, nor variables for whose path FreezeIf returns true:
	// it computes no gradients for them, and the optimizer does not see them. A stack of layers of
	// package loop is one variable. It is an error of kind ValueError if a pattern or FreezeIf
	// freezes no trainable variable of the loss, or if all are frozen. Freezing does not change the
	// placement or sharding of variables.
	Freeze   []string
	FreezeIf func(path string) bool
	// Average is the decay of moving averages of the trained variables, between 0 and 1; 0 keeps no
	// averages. Each applied step computes average = Average*average + (1-Average)*variable with
	// the updated variable. As in Keras (use_ema), the averages are initialized with the variables
	// after the first step. They are variables of the store at "/averages/", the step's name and
	// the variable's path. They are sharded like the optimizer's state and are part of checkpoints.
	// Averages of half-precision variables are float32. [Averaged] computes with the averages, and
	// [Step.SwapAverages] exports them.
	Average float64
	// AverageWarmUp starts with a smaller decay: after u updates the decay is min(Average,
	// (1+u)/(10+u)), as in TensorFlow's tf.train.ExponentialMovingAverage with num_updates.
	AverageWarmUp bool
}

func (o *Options) functionOptions(store *model.Store) strategy.FunctionOptions {
	return strategy.FunctionOptions{Name: o.Name, Store: store, Arguments: o.Arguments, SplitBatch: true,
		LocalBatch:  o.LocalBatch,
		UnequalRows: o.UnequalRows, Padding: strategy.MaskPadding, MirroredRandomNumbers: o.MirroredRandomNumbers}
}

// Step is a compiled training step: loss, gradients, one all-reduce for each gradient, and the
// optimizer's update of the variables. It is safe for concurrent use.
type Step struct {
	function *strategy.Function
	name     string
	guard    *guard  // nil if every update is applied
	scaler   *scaler // of a dynamic loss scale; nil without one
	metrics  *accumulator
	swap     func() *strategy.Function // see SwapAverages; nil if the step is known to have no averages
}

// New returns a training step of the model that loss builds, over the variables of store. In each
// replica the step computes gradients and applies them, like TensorFlow's
// tf.keras.optimizers.Optimizer.apply_gradients. opt must be an optimizer of GoMLX that accepts
// gradients, such as SGD or one of the Adam family. Any other optimizer is an error.
//
// The step trains the trainable variables that the loss uses. These are variables of the store, and
// variables of [strategy.TPUStrategy.NewVariable] that the loss reads with
// [strategy.ReplicaContext.Read], if they are mirrored and have a float or complex dtype. The
// optimizer's state for the latter, such as moments, is in the store below "/distributed" and is
// sharded like these variables. A trainable variable that is [strategy.OnRead] is an error of kind
// ValueError.
//
// Gradients and loss are averaged over the replicas, so that a step on a global batch equals the
// step of one device on the same batch, up to rounding.
//
// As in GoMLX's trainer, the loss includes the terms of the layers' regularizers (parameters such
// as regularizer.ParamL2, train.AddRegularizationLoss), and the step runs the per-step updates of
// layers (train.AddPerStepUpdateGraphFn).
//
// Errors have kind ValueError for a missing argument or invalid options. With metrics New also
// returns the errors of [strategy.TPUStrategy.NewVariable].
func New(s *strategy.TPUStrategy, store *model.Store, opt optimizer.Interface, loss Loss, o Options) (*Step, error) {
	freeze, err := o.freezer()
	if err := cmp.Or(checkArguments(s, store, loss, o.Arguments), checkOptimizer(opt), err, o.validate()); err != nil {
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
		stages = append(stages, t.metrics.prepare)
	}
	scaler := newScaler(o.Precision, o.Name)
	each := []stage{buildLoss(loss, o.Precision), weightLoss} // run for each microbatch
	if freeze != nil {
		stages, each = append(stages, freeze.freezeVariables), append(each, freeze.checkPatterns)
	}
	if scaler != nil {
		each = append(each, scaler.scaleLoss)
	}
	each = append(each, buildGradients)
	if o.Accumulate > 1 {
		if scaler != nil {
			stages = append(stages, scaler.readScale)
		}
		if t.metrics != nil {
			each = append(each, observeRows)
		}
		stages = append(stages, accumulate(o.Accumulate, o.Precision, each))
	} else {
		stages = append(stages, each...)
	}
	stages = append(stages, reduceGradients(o.Precision))
	if scaler != nil {
		stages = append(stages, scaler.unscaleGradients)
	}
	if o.ClipNorm != 0 {
		stages = append(stages, measureNorm)
	}
	if scaler != nil && scaler.Dynamic() {
		t.scaler = scaler
		stages = append(stages, scaler.adjustScale(t.guard != nil))
	}
	if t.guard != nil {
		stages = append(stages, t.guard.decideUpdate)
	}
	if o.ClipNorm != 0 {
		stages = append(stages, clip(o.ClipNorm))
	}
	if o.LearningRate.IsSet() {
		stages = append(stages, setLearningRate(opt, o.LearningRate))
	}
	if o.UpdateNorm {
		stages = append(stages, saveValues)
	}
	stages = append(stages, applyOptimizer(opt), finishStep)
	if o.Average != 0 {
		stages = append(stages, o.updateAverages)
		t.swap = newSwapFunction(s, store, o.Name)
	}
	if t.metrics != nil {
		stages = append(stages, o.observeStep)
	}
	f := o.functionOptions(store)
	f.Training = true
	t.function = engine.Internal(s).NewTrainingFunction(newStepFunc(stages), f, o.Accumulate,
		paddedRows(s, o.Accumulate))
	if t.guard != nil {
		engine.Internal(t.function).SetGuard(t.guard)
	}
	if t.metrics != nil {
		engine.Internal(t.function).SetMetrics(t.metrics.savedMetrics(), t.metrics.state, true)
	}
	return t, nil
}

// checkArguments returns an error if an argument is nil, if the strategy is closed or was not
// created by New, or if an annotation is invalid for every shape.
func checkArguments(s *strategy.TPUStrategy, store *model.Store, loss Loss, arguments []logical.Annotation) error {
	switch {
	case s == nil:
		return newOptionError("give a strategy", "there is none: it is nil")
	case engine.Internal(s).TPUStrategy == nil: // a zero value
		return engine.Internal(s).CheckOpen()
	case store == nil:
		return newOptionError("give a model.NewStore()", "there is no store of variables: it is nil")
	case loss == nil:
		return newOptionError("give a function that builds one", "there is no loss function: it is nil")
	}
	for i, a := range arguments {
		if err := a.ValidateOn(s.LogicalMesh(), fmt.Sprintf("argument %d", i), a.PartsOn(s.LogicalMesh())); err != nil {
			return &errkind.Fault{Op: "train: Options.Arguments", Err: err}
		}
	}
	return nil
}

// checkOptimizer returns an error for an optimizer that does not accept gradients.
func checkOptimizer(opt optimizer.Interface) error {
	if _, ok := opt.(gomlxtrain.OptimizeWithGradients); !ok {
		return newOptionError("use one of the Adam family or SGD", "optimizer %T does not take gradients", opt)
	}
	return nil
}

func (o *Options) validate() error {
	switch clip, decay := o.ClipNorm, o.Average; {
	case !o.NonFinite.isKnown():
		return newOptionError("use Apply, Skip or Stop", "Options.NonFinite is %s", o.NonFinite)
	case clip < 0 || math.IsNaN(clip) || clip > math.MaxFloat32:
		return newOptionError("give a positive number, or 0 for gradients as they are", "Options.ClipNorm is %v", clip)
	case o.Accumulate < 0:
		return newOptionError("use 0 for the whole batch at once, or the number of microbatches",
			"Options.Accumulate is %d", o.Accumulate)
	case decay != 0 && !(decay > 0 && decay < 1):
		return newOptionError("give a decay between 0 and 1, such as 0.999, or 0 for no averages",
			"Options.Average is %v", decay)
	case o.AverageWarmUp && decay == 0:
		return newOptionError("set Options.Average, such as to 0.999", "Options.AverageWarmUp is set without a decay")
	case o.LearningRate.IsSet():
		if err := o.LearningRate.Validate(); err != nil {
			return err
		}
	}
	return cmp.Or(o.Precision.Validate(), checkMetrics(o.Metrics, o.gauges()))
}

// observeStep accumulates the metrics of the step's loss and norms. It must run after all updates
// of variables.
func (o *Options) observeStep(p *stepBuilder) {
	if o.Accumulate < 2 {
		observeRows(p)
	}
	p.recorder.observeLoss(p.meanLoss(), p.weight)
	norms := o.computeNorms(p)
	norms[learningRate] = p.rate
	var values []*graph.Node
	for _, name := range o.gauges() {
		values = append(values, norms[name])
	}
	if len(values) > 0 {
		p.recorder.setGauges(len(o.Metrics), values)
	}
}

// StepOf returns the [Step] of a function that was loaded from a step file. For any other function it
// returns an error of kind ValueError. stepfile.LoadTrain calls it.
func StepOf(f *strategy.Function) (*Step, error) {
	m := engine.Internal(f)
	from := m.SavedStep()
	if from == nil || !from.IsTraining() || !from.SplitBatch {
		return nil, &errkind.Fault{Op: "train: of a function", Reason: "it is no training step of a file",
			Hint: "make the step with New, or load one with stepfile.LoadTrain", Class: errkind.ValueError}
	}
	if mode := NonFinite(from.Guard.Mode); !mode.isKnown() {
		return nil, &errkind.Fault{Op: "train: of a function",
			Reason: fmt.Sprintf("its way with steps that are not finite is %s", mode),
			Hint:   "compile the step again with this version", Class: errkind.DataLossError}
	}
	t := &Step{function: f, name: from.Name, metrics: accumulatorOf(f)}
	if m.Store() != nil {
		t.swap = newSwapFunction(f.Strategy(), m.Store(), from.Name)
	}
	if held, ok := m.Guard().(*guard); ok {
		t.guard = held
	} else if t.guard = newGuard(NonFinite(from.Guard.Mode), from.Name); t.guard != nil {
		t.guard.names = from.Guard.Gradients
		m.SetGuard(t.guard)
	}
	return t, nil
}

// Run runs one training step on a global batch and returns the loss, averaged over the replicas.
// Each argument becomes one tensor of the parameter in of the [Loss]. A host tensor is split along
// dimension 0 over the replicas and copied, as in [strategy.TPUStrategy.Mirror]. A
// *[strategy.PerReplica] already has the replicas' batches.
//
// A batch that is not divisible by the number of replicas is split like in TensorFlow: for 2 replicas,
// 3 rows become 2 and 1, and 1 row becomes 1 and 0. The batch is padded, and the step ignores the
// padding, as [strategy.MaskPadding] describes. Each replica's loss and gradients are weighted by its
// number of rows, so that the result is the mean over all rows of the batch. Moving averages of layers,
// such as those of batch normalization, are weighted the same way, and a replica without rows keeps its
// own states. Such a batch, and a value whose replicas have different numbers of rows, is compiled as a
// separate program. The loss must be a mean over rows, because a sum would be weighted in the same way.
// With several processes batches must be divisible.
//
// Run returns as soon as the computation has started. Reading the loss waits for the step. The loss
// belongs to the step, and the next Run overwrites it: read it before the next Run. If another
// goroutine is reading the loss when the next Run starts, that Run does not overwrite the loss and
// closes it instead.
//
// With several processes each process passes the whole batch, or only its own rows if
// [Options].LocalBatch is set. Errors are [*strategy.ArgumentError] for an argument,
// [*strategy.TraceError] for the loss function, [*NonFiniteError] for a step that stopped,
// [strategy.ErrClosed], and the compiler's errors for a new signature. After an error no update was
// applied.
func (t *Step) Run(ctx context.Context, batch ...any) (*strategy.Mirrored, error) {
	results, err := engine.Internal(t.function).RunResident(ctx, batch)
	if err != nil {
		return nil, err
	}
	return results[0].(*strategy.Mirrored), nil
}

// RunSteps runs one training step for each of the batches, in order, in one launch: it copies the
// batches to the devices and runs a loop there. It returns the last step's loss. The result equals
// that of separate calls of Run. A loop is compiled for each number of steps.
func (t *Step) RunSteps(ctx context.Context, batches ...[]any) (*strategy.Mirrored, error) {
	results, err := engine.Internal(t.function).RunSteps(ctx, batches)
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

// Bind returns a binding of the step to a fixed batch, for a loop over data that stays on the
// devices; see [strategy.Binding].
func (t *Step) Bind(ctx context.Context, batch ...any) (*strategy.Binding, error) {
	return t.function.Bind(ctx, batch...)
}

// Close frees the step's device memory: its compiled programs, the batch and the loss that it keeps
// for the next run, and its metrics. It does not close metrics whose variable existed before the
// step was loaded from a file. Variables of the store remain: the model's variables, the
// optimizer's state, averages, and the counts of [Step.NonFinite] and [Step.LossScale]. Calls after
// Close return an error that matches [strategy.ErrClosed]. Close waits for a concurrent Run. A
// second Close does nothing. The strategy's Close also closes the step.
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

// newOptionError returns an error of kind ValueError. reason is a format string, and hint suggests
// a correction.
func newOptionError(hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "train", Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}

// panicInvalid panics with the error of newOptionError. The trace recovers the panic and returns
// the error.
func panicInvalid(hint, reason string, args ...any) { panic(newOptionError(hint, reason, args...)) }

// Strategy returns the strategy that the step runs on.
func (t *Step) Strategy() *strategy.TPUStrategy { return t.function.Strategy() }

// Store returns the store with the variables that the step trains.
func (t *Step) Store() *model.Store { return engine.Internal(t.function).Store() }

// Arguments returns how the batch's tensors are sharded over the logical devices: see
// [Options].Arguments.
func (t *Step) Arguments() []logical.Annotation {
	return engine.Internal(t.function).ArgumentAnnotations()
}

// Name returns the step's name, which errors and profiles contain.
func (t *Step) Name() string { return t.name }
