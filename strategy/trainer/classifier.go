package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/aot"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// Classifier is a model that says to which class an input belongs, and what it is trained with; see
// [Flags.Classify]. Only Logits and the data have to be given.
type Classifier struct {
	// Logits builds the scores of the classes, floats [rows, classes], of a replica's inputs,
	// [rows, ...] in the dtype of the data.
	Logits func(rc *strategy.ReplicaContext, inputs *graph.Node) *graph.Node
	// Training and Test are examples: tuples of an input and its class, an integer from 0.
	Training, Test input.Dataset
	// Optimizer is Adam if nil, and LearningRate 0.001, if it is not given.
	Optimizer    optimizer.Interface
	LearningRate schedule.Schedule
	// Batch is the number of rows of a step where -batch is not given; 0 is 128.
	Batch int
	// Patience is after how many tests in turn without a smaller loss the run stops; 0 is 5.
	Patience int
	// Variables say how variables are split over the logical devices.
	Variables logical.Rules
}

// Classified is what came of a classifier, in the form of a program's last line. What was not
// measured is nil.
type Classified struct {
	Accuracy *float64 `json:"accuracy"`
	Loss     *float64 `json:"loss"`
	Steps    int64    `json:"steps"`
	Seconds  float64  `json:"seconds"`
	Out      string   `json:"out"`
}

// Classify trains a classifier as the flags say, and writes a [Classified] on stdout as one line of
// JSON. After each pass over the training data, which is shuffled anew in each, it is tested; the run
// stops early when the loss of the test does not fall any more, and keeps the best variables in the
// folder best of Out. What else is in Out is said at [Flags.Hooks]. With -topology it compiles the
// step for a slice that is not here. The result is whole batches' of training; the test has every
// example once.
func (f *Flags) Classify(ctx context.Context, c Classifier, stdout io.Writer) (err error) {
	batch := cmp.Or(f.Batch, c.Batch, 128)
	example, err := c.example(batch)
	if err != nil {
		return err
	}
	newStep := func(s *strategy.TPUStrategy) (*train.Step, error) {
		o := train.Options{Precision: f.Precision, Accumulate: f.Accumulate, LearningRate: c.LearningRate, Metrics: []train.Metric{accuracy}}
		if c.Optimizer == nil {
			c.Optimizer = optimizer.Adam().LearningRate(1e-3).Done()
		}
		return train.New(s, f.Store(), c.Optimizer, c.loss, o)
	}
	if f.Requested() {
		return Exit(f.Main(ctx, f.Strategy(c.Variables), func(s *strategy.TPUStrategy) (aot.Step, []any, error) {
			step, err := newStep(s)
			return step, example, err
		}))
	}
	strat, done, err := f.Open(ctx, f.Strategy(c.Variables), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	step, err := newStep(strat)
	if err != nil {
		return err
	}
	held, err := train.NewEvaluation(strat, step.Store(), c.loss, train.Options{Precision: f.Precision, Metrics: []train.Metric{train.MeanLoss(), accuracy}})
	if err != nil {
		return err
	}
	rows := int64(c.Training.Info().Cardinality)
	pass := fit.Every(max(rows/int64(batch), 1))
	if rows <= 0 { // nobody knows, or it never ends
		pass = fit.Every(max(f.Steps/10, 1))
	}
	batches := c.Training.Shuffle(int(min(max(rows, 10000), 100000)), input.ShuffleOptions{Seed: uint64(f.Seed)}).Repeat(-1).Batch(batch, true)
	hooks := append(f.Hooks(pass, "loss", "accuracy", "test/loss", "test/accuracy"),
		fit.Evaluate("test", held, fit.Dataset(c.Test.Batch(batch, false)), pass),
		fit.EarlyStop("test/loss", cmp.Or(c.Patience, 5)), fit.KeepBest(below(f.Out, "best"), "test/loss"))
	result, err := fit.Run(ctx, step, fit.Dataset(batches), f.Fit(map[string]string{"batch": fmt.Sprint(batch)}), hooks...)
	outcome := Classified{Steps: result.Step, Seconds: result.Seconds, Out: f.Out}
	for i, m := range result.Metrics {
		switch m.Name {
		case "test/accuracy":
			outcome.Accuracy = &result.Metrics[i].Value
		case "test/loss":
			outcome.Loss = &result.Metrics[i].Value
		}
	}
	line, jsonErr := json.Marshal(outcome)
	if jsonErr == nil {
		_, jsonErr = fmt.Fprintf(stdout, "%s\n", line)
	}
	return errors.Join(err, jsonErr)
}

var accuracy = train.Reported("accuracy")

// loss is the mean cross-entropy of a replica's rows.
func (c *Classifier) loss(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	logits := []*graph.Node{c.Logits(rc, in[0])}
	classes := []*graph.Node{graph.ExpandAxes(graph.ConvertDType(in[1], dtypes.Int32), -1)}
	train.Report(rc, "accuracy", metric.SparseCategoricalAccuracyGraph(nil, classes, logits), nil)
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits(classes, logits))
}

// example checks the data, and describes a batch of it.
func (c *Classifier) example(rows int) ([]any, error) {
	if c.Logits == nil {
		return nil, &errkind.Fault{Op: "trainer: classifier", Reason: "it has no Logits", Hint: "give the function that builds the scores of the classes", Class: errkind.ValueError}
	}
	if err := errors.Join(c.Training.Err(), c.Test.Err()); err != nil {
		return nil, err
	}
	for name, data := range map[string]input.Dataset{"Training": c.Training, "Test": c.Test} {
		if info := data.Info(); len(info.Spec.Leaves()) != 2 || info.BatchSize != 0 || info.Cardinality == 0 {
			return nil, &errkind.Fault{Op: "trainer: classifier", Subject: name, Class: errkind.ValueError, Hint: "give tuples of one input and its class, not in batches",
				Reason: fmt.Sprintf("%s elements of %s", info.Cardinality, info.Spec)}
		}
	}
	var example []any
	for _, leaf := range c.Training.Info().Spec.Leaves() {
		dtype, ok := leaf.Kind.DType()
		if !ok || !leaf.Static() {
			return nil, &errkind.Fault{Op: "trainer: classifier", Subject: "Training", Class: errkind.ValueError, Hint: "give numbers of one shape; Map can make them so",
				Reason: fmt.Sprintf("elements of %s", c.Training.Info().Spec)}
		}
		example = append(example, shapes.Make(dtype, append([]int{rows}, leaf.Dims...)...))
	}
	return example, nil
}
