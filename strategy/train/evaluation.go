package train

import (
	"cmp"
	"context"
	"iter"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Evaluation is a compiled step that accumulates metrics over batches without training: of data
// that was held out of the training. It is safe for concurrent use, but all its users add to the
// same metrics.
//
// The step computes the loss as in evaluation: dropout is off, and batch normalisation uses its
// averages. Nothing is learned, and no gradients are made. It uses the store's variables where the
// training steps of the strategy have them, on the devices, and leaves them as they are, so that it
// may run between training steps. What a loss function itself writes in evaluation it does write. A
// loss function that builds its loss within [Averaged] is evaluated with a training step's averages.
type Evaluation struct {
	function *strategy.Function
	inner    function // of it
	name     string
	metrics  *accumulator
}

// NewEvaluation returns an evaluation of the model that loss builds, over the variables of store:
// the loss function of the training, as a rule. As in [New], the loss is the mean over a replica's
// rows, and the terms of the layers' regularizers are part of it. Of the options Name, Arguments,
// LocalBatch, UnequalRows, MirroredRandomNumbers, Precision and Metrics configure the evaluation; the others are for
// training, and an error. Without a name it is "evaluation", and without Metrics it has [MeanLoss].
// Errors: as of [New].
func NewEvaluation(s *strategy.TPUStrategy, store *model.Store, loss Loss, o Options) (*Evaluation, error) {
	if err := cmp.Or(parts(s, store, loss, o.Arguments), o.trainNothing(), o.Precision.Validate(), checkMetrics(o.Metrics, nil)); err != nil {
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
		metrics.begin, forward(loss, o.Precision),
		observeRows, func(p *pass) { p.recorder.observe(p.own, p.weight) },
	}
	e.function = s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		p := &pass{trainer: newTrainer(rc), in: in}
		for _, add := range stages {
			add(p)
		}
		return nil
	}, o.function(store))
	e.inner = innerFunction(e.function)
	e.inner.SetMetrics(metrics.saved(), metrics.state, true)
	return e, nil
}

// trainNothing refuses options that only a training step acts on.
func (o *Options) trainNothing() error {
	for _, only := range []struct {
		name string
		set  bool
	}{
		{"NonFinite", o.NonFinite != Apply}, {"ClipNorm", o.ClipNorm != 0}, {"Norms", o.Norms}, {"UpdateNorm", o.UpdateNorm},
		{"LearningRate", o.LearningRate.Is()}, {"Accumulate", o.Accumulate != 0}, {"Freeze", o.Freeze != nil}, {"FreezeIf", o.FreezeIf != nil},
		{"Average", o.Average != 0}, {"AverageWarmUp", o.AverageWarmUp},
	} {
		if only.set {
			return invalid("leave it out of those of an evaluation", "Options.%s is for training", only.name)
		}
	}
	return nil
}

// EvaluationOf returns a function from a step file as the evaluation that it is. For another
// function it returns an error of kind ValueError; stepfile.LoadEvaluation calls it.
func EvaluationOf(f *strategy.Function) (*Evaluation, error) {
	inner, metrics := innerFunction(f), accumulatorOf(f)
	from := inner.Loaded()
	if from == nil || from.Training || metrics == nil {
		return nil, &errkind.Fault{Op: "train: of a function", Reason: "it is no evaluation of a file",
			Hint: "make the evaluation with NewEvaluation, or load one with stepfile.LoadEvaluation", Class: errkind.ValueError}
	}
	return &Evaluation{function: f, inner: inner, name: from.Name, metrics: metrics}, nil
}

// Run adds a global batch to the metrics. The batch is as in [Step.Run]: one whose rows do not
// divide among the replicas counts by its real rows. Run returns when the work is under way.
func (e *Evaluation) Run(ctx context.Context, batch ...any) error {
	_, err := e.inner.RunResident(ctx, batch)
	return err
}

// Results reads the metrics of the batches since the last [Evaluation.Reset], in the order of
// [Options].Metrics. It waits for the batches under way. With several processes all call it
// at the same point. Without any rows it returns an error of kind ValueError.
func (e *Evaluation) Results(ctx context.Context) ([]Reading, error) {
	if err := e.ready(ctx, "Results"); err != nil {
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
	return nil, &errkind.Fault{Op: "train: " + e.name, Reason: "no rows were evaluated", Hint: "give Run a batch first; a dataset may be used up, or smaller than its batch",
		Class: errkind.ValueError}
}

// Reset makes the metrics as new. With several processes all call it at the same point.
func (e *Evaluation) Reset(ctx context.Context) error {
	if err := e.ready(ctx, "Reset"); err != nil {
		return err
	}
	return e.metrics.reset(ctx)
}

// Over evaluates batches from the first to the last, and nothing else: it resets the metrics, runs
// each batch and returns the results. A batch that comes with an error ends it with that error.
func (e *Evaluation) Over(ctx context.Context, batches iter.Seq2[[]any, error]) ([]Reading, error) {
	if err := e.Reset(ctx); err != nil {
		return nil, err
	}
	if batches == nil {
		return nil, &errkind.Fault{Op: "train: " + e.name, Reason: "there are no batches: the iterator is nil", Hint: "give one, such as feed.Feed.Args",
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

// Close frees what the evaluation has on the devices, its metrics included; see [Step.Close].
func (e *Evaluation) Close() error {
	if e == nil {
		return nil
	}
	return e.function.Close()
}

// MetricNames returns the names of what [Evaluation.Results] reads, in its order.
func (e *Evaluation) MetricNames() []string { return e.metrics.names() }

// Arguments returns how the batch's tensors are split over the logical devices: see
// [Options].
func (e *Evaluation) Arguments() []logical.Annotation { return e.inner.Arguments() }

// Compiled returns the compiled step for batches like this one; see [strategy.Function.Compiled].
func (e *Evaluation) Compiled(ctx context.Context, batch ...any) (*strategy.CompiledStep, error) {
	return e.function.Compiled(ctx, batch...)
}

// Lowered traces and lowers the step for batches like this one, without compiling it.
func (e *Evaluation) Lowered(ctx context.Context, batch ...any) (*spmd.Module, error) {
	return e.function.Lowered(ctx, batch...)
}

// ready refuses the code of a step that is being traced, strategies without devices, and an
// evaluation that was closed.
func (e *Evaluation) ready(ctx context.Context, call string) error {
	return cmp.Or(innerStrategy(e.function.Strategy()).Usable(ctx, "train: "+e.name+": "+call), e.inner.Check())
}
