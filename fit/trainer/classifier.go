package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/aot"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// Classifier is a classification model and its training data; see [Flags.Classify]. Only Logits,
// Training and Test are required.
type Classifier struct {
	// Logits returns the scores of the classes, floats [rows, classes], for the inputs of a
	// replica, [rows, ...] in the dtype of the data. With -precision, apply precision.Compute to
	// the first floats that are computed from integers, because a policy does not cast integers.
	// With -remat, build the layers in [remat.Block] or in a layer loop, with the policy
	// [Flags].Remat. A flag without effect is an error.
	Logits func(rc *strategy.ReplicaContext, inputs *graph.Node) *graph.Node
	// Training and Test yield examples, not batches. An example is a tuple of an input and its
	// class, an integer from 0.
	Training, Test input.Dataset
	// Optimizer is the optimizer; nil means Adam. The default of LearningRate is 0.001.
	Optimizer    optimizer.Interface
	LearningRate schedule.Schedule
	// Batch is the number of rows of a step if -batch is not given; 0 means 128.
	Batch int
	// Patience is the number of consecutive tests without a smaller loss after which the run stops;
	// 0 means 5.
	Patience int
	// Variables are the rules that shard variables over the logical devices.
	Variables logical.Rules
	// Hooks are additional hooks of the run.
	Hooks []fit.Hook
}

// ClassifierResult is the result of training a classifier. Programs print it as JSON in their last
// line. Values that were not measured are nil.
type ClassifierResult struct {
	// Accuracy and TestLoss are the values of the last test, and Loss is the last training loss
	// that was read.
	Accuracy *float64 `json:"accuracy"`
	TestLoss *float64 `json:"test_loss"`
	Loss     *float64 `json:"loss"`
	Replicas int      `json:"replicas"`
	Logical  int      `json:"logical"`
	Devices  int      `json:"devices"`
	Batch    int      `json:"batch"`
	Seed     int64    `json:"seed"`
	// Steps is the number of steps of the whole run, and Resumed is the number of steps of earlier
	// runs. Seconds is the time of this run. TrainSeconds is the time of its steps, and
	// ExamplesPerSecond is the throughput in that time.
	Steps   int64 `json:"steps"`
	Resumed int64 `json:"resumed,omitempty"`
	// Stopped is the reason why the run ended early, or why a resumed run had no step left; see
	// fit.Result.
	Stopped           string  `json:"stopped,omitempty"`
	Seconds           float64 `json:"seconds"`
	TrainSeconds      float64 `json:"train_seconds"`
	ExamplesPerSecond float64 `json:"examples_per_second"`
	Interrupted       bool    `json:"interrupted"`
	Out               string  `json:"out"`
}

// Classify trains a classifier with the settings of the flags; see [Flags.Train]. It writes the
// result to stdout: a readable line, and a [ClassifierResult] as one line of JSON. After an
// interrupt it writes only the JSON. With -topology it compiles the step for a slice instead of
// training.
func (f *Flags) Classify(ctx context.Context, c Classifier, stdout io.Writer) error {
	if f.Requested() {
		example, err := c.exampleShapes(f.batchSize(c))
		if err != nil {
			return err
		}
		return NewExitError(f.Main(ctx, f.StrategyOptions(c.Variables),
			func(s *strategy.TPUStrategy) (aot.Step, []any, error) {
				step, err := f.newStep(s, &c)
				return step, example, err
			}))
	}
	outcome, err := f.Train(ctx, c)
	if err != nil && !outcome.Interrupted {
		return err
	}
	return errors.Join(err, outcome.Write(stdout))
}

// Write writes the result to w in the format of [Flags.Classify].
func (r ClassifierResult) Write(w io.Writer) error {
	line, err := json.Marshal(r)
	if err == nil && !r.Interrupted {
		rate := fmt.Sprintf("%.0f examples/s", r.ExamplesPerSecond)
		if r.Resumed > 0 && r.Steps == r.Resumed {
			rate = "no steps were left"
		}
		_, err = fmt.Fprintf(w, "%s, in %.1f s (%s). Files: %s\n", r, r.Seconds, rate, r.Out)
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", line)
	}
	return err
}

func (r ClassifierResult) String() string {
	if r.Accuracy == nil {
		return fmt.Sprintf("Not tested after %d steps", r.Steps)
	}
	return fmt.Sprintf("Held-out accuracy %.2f %% after %d steps", *r.Accuracy*100, r.Steps)
}

// Train trains a classifier on the devices of the flags. The training data is shuffled in a new
// order in each pass. All training batches are full; a batch may span two passes. After each pass
// the classifier is evaluated on all examples of Test. The run stops early if the test loss does
// not improve, and saves the best variables in the folder best of Out. [Flags.Hooks] documents the
// other files in Out. After an interrupt the outcome contains the values so far, and the error has
// exit code 75 if Out was set by the caller.
func (f *Flags) Train(ctx context.Context, c Classifier) (outcome ClassifierResult, err error) {
	batch := f.batchSize(c)
	outcome = ClassifierResult{Replicas: f.Replicas, Logical: f.Logical, Devices: f.Devices, Batch: batch, Seed: f.Seed}
	defer func() {
		var stopped *interrupt.Error
		outcome.Interrupted = err != nil && (ctx.Err() != nil || errors.As(err, &stopped))
	}()
	if _, err := c.exampleShapes(batch); err != nil {
		return outcome, err
	}
	strat, done, err := f.Open(ctx, f.StrategyOptions(c.Variables), 0)
	if err != nil {
		return outcome, err
	}
	defer func() { err = errors.Join(err, done()) }()
	outcome.Replicas, outcome.Devices, outcome.Out = strat.NumReplicasInSync(), strat.System().Topology().NumDevices(),
		f.Out
	step, err := f.newStep(strat, &c)
	if err != nil {
		return outcome, err
	}
	held, err := train.NewEvaluation(strat, step.Store(), c.loss,
		train.Options{Precision: f.Precision, Metrics: []train.Metric{train.Reported("loss"), accuracy}})
	if err != nil {
		return outcome, err
	}
	rows := int64(c.Training.Info().Cardinality)
	pass := fit.Every(max(min(rows/int64(batch), f.Steps), 1))
	if rows <= 0 { // unknown or infinite
		pass = fit.Every(max(f.Steps/10, 1))
	}
	batches := c.Training.Shuffle(int(min(max(rows, 10000), 100000)),
		input.ShuffleOptions{Seed: uint64(f.Seed)}).Repeat(-1).Batch(batch, true)
	hooks := append(f.Hooks(pass, "loss", "accuracy", "test/loss", "test/accuracy"),
		f.summaryHook(step.Store(), c, batch), fit.TerminateOnNaN(),
		fit.Evaluate("test", held, fit.Dataset(c.Test.Batch(batch, false), feed.Options{Partial: feed.Pad}), pass),
		fit.EarlyStop("test/loss", cmp.Or(c.Patience, 5)))
	if f.savesCheckpoints {
		hooks = append(hooks, fit.KeepBest(joinPath(f.Out, "best"), "test/loss"))
	}
	settings := map[string]string{"batch": fmt.Sprint(batch), "seed": fmt.Sprint(f.Seed),
		"data": fmt.Sprintf("%s of %s", c.Training.Info().Cardinality, c.Training.Info().Spec)}
	result, err := fit.Run(ctx, step, fit.Dataset(batches), f.FitOptions(settings), append(hooks, c.Hooks...)...)
	outcome.Steps, outcome.Resumed, outcome.Seconds, outcome.TrainSeconds = result.Step, result.ResumedFrom,
		result.Seconds, result.TrainSeconds
	outcome.Stopped = result.StopReason
	if result.TrainSeconds > 0 {
		outcome.ExamplesPerSecond = float64(result.Rows) / result.TrainSeconds
	}
	for name, to := range map[string]**float64{"test/accuracy": &outcome.Accuracy, "test/loss": &outcome.TestLoss,
		fit.Loss: &outcome.Loss} {
		if v, ok := result.Value(name); ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
			*to = &v
		}
	}
	return outcome, err
}

func (f *Flags) batchSize(c Classifier) int { return cmp.Or(f.Batch, c.Batch, 128) }

func (f *Flags) newStep(s *strategy.TPUStrategy, c *Classifier) (*train.Step, error) {
	o := train.Options{Precision: f.Precision, Accumulate: f.Accumulate, LearningRate: c.LearningRate,
		Metrics: []train.Metric{accuracy}}
	if c.Optimizer == nil {
		c.Optimizer = optimizer.Adam().LearningRate(1e-3).Done()
	}
	return train.New(s, f.NewStore(), c.Optimizer, c.loss, o)
}

var accuracy = train.Reported("accuracy")

// loss returns the mean cross-entropy of a replica's rows. In an evaluation, in[2] masks the rows
// that are padding.
func (c *Classifier) loss(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	logits, classes := precision.Output(c.Logits(rc, in[0])), graph.ConvertDType(in[1], dtypes.Int32)
	var counts *graph.Node
	if len(in) > 2 {
		counts = in[2]
	}
	oneHot := graph.OneHot(classes, logits.Shape().Dim(-1), logits.DType())
	losses := graph.Neg(graph.ReduceSum(graph.Mul(oneHot, graph.LogSoftmax(logits)), -1))
	train.Report(rc, "loss", losses, counts)
	correct := graph.Equal(graph.ArgMax(logits, -1, dtypes.Int32), classes)
	train.Report(rc, "accuracy", correct, counts)
	return graph.ReduceAllMean(losses)
}

// exampleShapes checks the data and returns the shapes of the arguments of a step.
func (c *Classifier) exampleShapes(rows int) ([]any, error) {
	if c.Logits == nil {
		return nil, &errkind.Fault{Op: "trainer: classifier", Reason: "it has no Logits",
			Hint: "give the function that builds the scores of the classes", Class: errkind.ValueError}
	}
	if err := errors.Join(c.Training.Err(), c.Test.Err()); err != nil {
		return nil, err
	}
	for name, data := range map[string]input.Dataset{"Training": c.Training, "Test": c.Test} {
		if info := data.Info(); len(info.Spec.Leaves()) != 2 || info.BatchSize != 0 || info.Cardinality == 0 {
			return nil, &errkind.Fault{Op: "trainer: classifier", Subject: name, Class: errkind.ValueError,
				Hint:   "give tuples of one input and its class, not in batches",
				Reason: fmt.Sprintf("%s elements of %s", info.Cardinality, info.Spec)}
		}
	}
	var example []any
	for _, leaf := range c.Training.Info().Spec.Leaves() {
		dtype, ok := leaf.Kind.DType()
		if !ok || !leaf.Static() {
			return nil, &errkind.Fault{Op: "trainer: classifier", Subject: "Training", Class: errkind.ValueError,
				Hint:   "give numbers of one shape; Map can make them so",
				Reason: fmt.Sprintf("elements of %s", c.Training.Info().Spec)}
		}
		example = append(example, shapes.Make(dtype, append([]int{rows}, leaf.Dims...)...))
	}
	return example, nil
}

// summaryHook returns a hook that prints, on process 0 after the first record, the data, the mesh
// and a table of the trainable variables.
func (f *Flags) summaryHook(store *model.Store, c Classifier, batch int) fit.Hook {
	shown := false
	return fit.Hook{Name: "summary", Record: func(_ context.Context, s *fit.State) error {
		if shown || !s.IsChief() {
			return nil
		}
		shown = true
		strat := s.Strategy()
		replicas := strat.NumReplicasInSync()
		out := tabwriter.NewWriter(f.line, 0, 0, 2, ' ', 0)
		row := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
		row("data\t%s of %s to train on, %s to test with", c.Training.Info().Cardinality, c.Training.Info().Spec,
			c.Test.Info().Cardinality)
		row("mesh\treplica=%d,logical=%d of %d %s devices", replicas, strat.NumLogicalDevices(),
			strat.System().Topology().NumDevices(), strat.System().Platform())
		row("batch\t%d, %d a replica; up to %d steps", batch, batch/replicas, s.TotalSteps())
		row("\nvariable\tshape\tover a replica's devices\tbytes\tbytes/device")
		bytes, perDevice := 0, 0
		for _, v := range strat.Variables(store).All() {
			bytes, perDevice = bytes+int(v.Shape().ByteSize()), perDevice+v.BytesPerDevice()
			if v.Trainable() {
				row("%s\t%s\t%s\t%d\t%d", v.Path(), v.Shape(), describePlacement(v), v.Shape().ByteSize(), v.BytesPerDevice())
			}
		}
		row("with the optimizer's\t\t\t%d\t%d", bytes, perDevice)
		return out.Flush()
	}}
}

// describePlacement describes how a variable is sharded over a replica's devices.
func describePlacement(v *strategy.Variable) string {
	if text := v.Annotation().String(); text != "none" {
		return text
	}
	return "whole"
}
