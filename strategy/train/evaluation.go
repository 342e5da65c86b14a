package train

import (
	"cmp"
	"context"
	"iter"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Evaluation is a compiled step that accumulates metrics over batches of held-out data, without training.
// It is safe for concurrent use, but all users add to the same metrics.
//
// The loss is computed in evaluation mode: dropout is off, and batch normalization uses its moving
// averages. No gradients are computed. The evaluation uses the store's variables on the devices and
// does not change them, unless the loss function itself writes a variable in evaluation mode. It can
// therefore run between training steps. To evaluate the averages of a training step, build the loss
// within [Averaged].
type Evaluation struct {
	function *strategy.Function
	name     string
	metrics  *accumulator
}

// NewEvaluation returns an evaluation of the model that loss builds, over the variables of store.
// loss is usually the loss function of the training step. As in [New], the loss is the mean over a
// replica's rows and includes the terms of the layers' regularizers.
//
// The options Name, Arguments, LocalBatch, UnequalRows, MirroredRandomNumbers, Precision and
// Metrics configure the evaluation. All other options must be unset. Name defaults to "evaluation",
// and Metrics to [MeanLoss]. Errors are those of [New].
func NewEvaluation(s *strategy.TPUStrategy, store *model.Store, loss Loss, o Options) (*Evaluation, error) {
	if err := cmp.Or(checkArguments(s, store, loss, o.Arguments), o.checkEvaluationOptions(),
		o.Precision.Validate(), checkMetrics(o.Metrics, nil)); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "evaluation"
	}
	if len(o.Metrics) == 0 {
		o.Metrics = []Metric{MeanLoss()}
	}
	metrics, err := newAccumulator(s, o.Name, o.Metrics, nil)
	if err != nil {
		return nil, err
	}
	e := &Evaluation{name: o.Name, metrics: metrics}
	stages := []stage{
		metrics.prepare, buildLoss(loss, o.Precision),
		observeRows, func(p *stepBuilder) { p.recorder.observeLoss(p.own, p.weight) },
	}
	e.function = s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		p := &stepBuilder{trainer: newTrainer(rc), in: in}
		for _, add := range stages {
			add(p)
		}
		return nil
	}, o.functionOptions(store))
	engine.Internal(e.function).SetMetrics(metrics.savedMetrics(), metrics.state, true)
	return e, nil
}

// checkEvaluationOptions returns an error if an option is set that only training steps support.
func (o *Options) checkEvaluationOptions() error {
	for _, only := range []struct {
		name string
		set  bool
	}{
		{"NonFinite", o.NonFinite != Apply}, {"ClipNorm", o.ClipNorm != 0}, {"Norms", o.Norms},
		{"UpdateNorm", o.UpdateNorm},
		{"LearningRate", o.LearningRate.IsSet()}, {"Accumulate", o.Accumulate != 0}, {"Freeze", o.Freeze != nil},
		{"FreezeIf", o.FreezeIf != nil},
		{"Average", o.Average != 0}, {"AverageWarmUp", o.AverageWarmUp},
	} {
		if only.set {
			return newOptionError("leave it out of those of an evaluation", "Options.%s is for training", only.name)
		}
	}
	return nil
}

// EvaluationOf returns the [Evaluation] of a function that was loaded from a step file. For any
// other function it returns an error of kind ValueError. stepfile.LoadEvaluation calls it.
func EvaluationOf(f *strategy.Function) (*Evaluation, error) {
	from, metrics := engine.Internal(f).SavedStep(), accumulatorOf(f)
	if from == nil || from.Training || metrics == nil {
		return nil, &errkind.Fault{Op: "train: of a function", Reason: "it is no evaluation of a file",
			Hint:  "make the evaluation with NewEvaluation, or load one with stepfile.LoadEvaluation",
			Class: errkind.ValueError}
	}
	return &Evaluation{function: f, name: from.Name, metrics: metrics}, nil
}

// Run adds a global batch to the metrics. Batches are passed as in [Step.Run]. Padding rows of an
// uneven batch do not count. Run returns as soon as the computation has started.
func (e *Evaluation) Run(ctx context.Context, batch ...any) error {
	_, err := engine.Internal(e.function).RunResident(ctx, batch)
	return err
}

// Results reads the metrics of the batches since the last [Evaluation.Reset], in the order of
// [Options].Metrics. It waits for running batches. With several processes, all must call it at the
// same point. If no rows were evaluated, it returns an error of kind ValueError.
func (e *Evaluation) Results(ctx context.Context) ([]Reading, error) {
	if err := e.checkReady(ctx, "Results"); err != nil {
		return nil, err
	}
	all, err := e.metrics.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Weight != 0 {
			return all, nil
		}
	}
	return nil, &errkind.Fault{Op: "train: " + e.name, Reason: "no rows were evaluated",
		Hint:  "give Run a batch first; a dataset may be used up, or smaller than its batch",
		Class: errkind.ValueError}
}

// Reset clears the metrics. With several processes, all must call it at the same point.
func (e *Evaluation) Reset(ctx context.Context) error {
	if err := e.checkReady(ctx, "Reset"); err != nil {
		return err
	}
	return e.metrics.reset(ctx)
}

// Over resets the metrics, runs each batch and returns the results. It returns the first error of
// the iterator or of a batch.
func (e *Evaluation) Over(ctx context.Context, batches iter.Seq2[[]any, error]) ([]Reading, error) {
	if err := e.Reset(ctx); err != nil {
		return nil, err
	}
	if batches == nil {
		return nil, &errkind.Fault{Op: "train: " + e.name, Reason: "there are no batches: the iterator is nil",
			Hint:  "give one, such as feed.Feed.Args",
			Class: errkind.ValueError}
	}
	for batch, err := range batches {
		if err != nil {
			return nil, err
		}
		if err := e.Run(ctx, batch...); err != nil {
			return nil, err
		}
	}
	return e.Results(ctx)
}

// Close frees the evaluation's device memory, including its metrics; see [Step.Close].
func (e *Evaluation) Close() error {
	if e == nil {
		return nil
	}
	return e.function.Close()
}

// MetricNames returns the names of the metrics in the order of [Evaluation.Results].
func (e *Evaluation) MetricNames() []string { return e.metrics.names() }

// Arguments returns how the batch's tensors are sharded over the logical devices; see
// [Options].Arguments.
func (e *Evaluation) Arguments() []logical.Annotation {
	return engine.Internal(e.function).ArgumentAnnotations()
}

// Compiled returns the compiled step for batches like this one; see [strategy.Function.Compiled].
func (e *Evaluation) Compiled(ctx context.Context, batch ...any) (*strategy.CompiledStep, error) {
	return e.function.Compiled(ctx, batch...)
}

// Lowered traces and lowers the step for batches like this one, without compiling it.
func (e *Evaluation) Lowered(ctx context.Context, batch ...any) (*spmd.Module, error) {
	return e.function.Lowered(ctx, batch...)
}

// checkReady returns an error if the evaluation is closed, if the strategy has no devices, or if it
// is called in a traced function.
func (e *Evaluation) checkReady(ctx context.Context, call string) error {
	return cmp.Or(engine.Internal(e.function.Strategy()).CheckUsable(ctx, "train: "+e.name+": "+call),
		engine.Internal(e.function).CheckOpen())
}
