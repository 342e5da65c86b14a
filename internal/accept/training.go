package accept

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

//go:generate go test -run TestStoredLosses -update .

// storedLosses contains the expected losses, which the CPU plugin computed on one device.
// TestStoredLosses compares and updates the file.
//
//go:embed losses.json
var storedLosses []byte

// ReferenceLosses is the content of losses.json: the expected losses of the training.
type ReferenceLosses struct {
	// Origin describes how the file was created. Plugin is the plugin that computed the losses.
	Origin string `json:"made"`
	Plugin string `json:"plugin"`
	// Losses maps a precision, "float32" or "bfloat16", to the loss of each step.
	Losses map[string][]float64 `json:"losses"`
}

func readStoredLosses() (s ReferenceLosses, err error) {
	err = json.Unmarshal(storedLosses, &s)
	return s, err
}

// Sizes of the test training, a regression with one hidden layer.
const (
	trainSteps    = 100
	trainBatch    = 256
	trainFeatures = 16
	trainHidden   = 96
)

// trainCase is a configuration of the test training: a mesh, shardings and a precision.
type trainCase struct {
	name     string
	losses   string // "float32" or "bfloat16"
	strategy strategy.Options
}

// trainCases returns the configurations of the training for n devices. They differ in the number of
// logical devices per replica and the number of mesh axes, and include sharded state and bfloat16.
// Sharded state is omitted for several slices, because libtpu crashes when it compiles such a step
// (cross_slice_rewrites.cc, kMixed).
func trainCases(n, slices int) (all []trainCase) {
	replicas := gcd(n, trainBatch)
	add := func(losses, what string, r, p int, o strategy.Options) {
		o.Replicas, o.LogicalDevices = r, p
		if losses == "float32" {
			o.Precision = lowering.PrecisionHighest
		}
		if p > 1 && trainHidden%p == 0 && len(o.LogicalAxes) == 0 {
			o.Variables = append(o.Variables, logical.Match("hidden", logical.SplitInto(1, p)), logical.Match("output",
				logical.SplitInto(p, 1)))
		}
		all = append(all, trainCase{fmt.Sprintf("%s%s, %d x %d", losses, what, r, p), losses, o})
	}
	add("float32", "", replicas, n/replicas, strategy.Options{})
	if replicas > 1 && slices == 1 {
		add("float32", " with the state in parts", replicas, n/replicas,
			strategy.Options{Variables: logical.Rules{logical.MatchState("", logical.ShardParameters)}})
	}
	if replicas%2 == 0 {
		add("float32", "", replicas/2, 2*n/replicas, strategy.Options{})
	}
	if p := 8 * n / replicas; replicas%8 == 0 && p == 8 {
		add("float32", "", replicas/8, p, strategy.Options{})
		add("float32", " on four axes", replicas/8, p, strategy.Options{
			LogicalAxes: []sharding.Axis{{Name: "x", Size: 2}, {Name: "y", Size: 2}, {Name: "z", Size: 2}},
			Variables: logical.Rules{logical.Match("hidden", logical.SplitOverAxes("x", "y,z")), logical.Match("output",
				logical.SplitOverAxes("y,z", ""))},
		})
	}
	add("bfloat16", "", replicas, n/replicas, strategy.Options{})
	return all
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// pseudorandomTensor returns a float32 tensor of pseudorandom numbers between -1/2 and 1/2.
func pseudorandomTensor(seed int, dims ...int) *tensors.Tensor {
	flat := make([]float32, tensorType{dims: dims}.numElements())
	state := uint32(seed)*2654435761 + 1
	for i := range flat {
		state = state*1664525 + 1013904223
		flat[i] = float32(state>>8)/(1<<24) - 0.5
	}
	return tensors.FromFlatDataAndDimensions(flat, dims...)
}

// trainingBatch returns the features of a step, and targets that are a function of the features.
func trainingBatch(step int) (x, y *tensors.Tensor) {
	x = pseudorandomTensor(step+1, trainBatch, trainFeatures)
	features := tensors.MustCopyFlatData[float32](x)
	targets := make([]float32, trainBatch)
	for i := range targets {
		row := features[i*trainFeatures : (i+1)*trainFeatures]
		targets[i] = row[0] - row[1] + 2*row[2]*row[3] + row[4]*row[4]
	}
	return x, tensors.FromFlatDataAndDimensions(targets, trainBatch, 1)
}

// trainingStep returns the training step with new variables, computed in "float32" or "bfloat16".
func trainingStep(s *strategy.TPUStrategy, losses string) (*train.Step, error) {
	var o train.Options
	o.Name = "accept training " + losses
	if losses == "bfloat16" {
		policy, err := precision.ParsePolicy("mixed_bfloat16")
		if err != nil {
			return nil, err
		}
		o.Precision = policy
	}
	store := model.NewStore()
	store.VariableWithValue("/hidden", pseudorandomTensor(10007, trainFeatures, trainHidden))
	store.VariableWithValue("/output", pseudorandomTensor(20011, trainHidden, 1))
	return train.New(s, store, optimizer.StochasticGradientDescent().WithLearningRate(0.2).WithDecay(false).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			hidden := precision.Compute(rc.Scope().VariableWithValue("hidden", pseudorandomTensor(10007, trainFeatures,
				trainHidden)).NodeValue(rc.Graph()))
			output := precision.Compute(rc.Scope().VariableWithValue("output", pseudorandomTensor(20011, trainHidden,
				1)).NodeValue(rc.Graph()))
			y := graph.Dot(graph.Tanh(graph.Dot(in[0], hidden).Product()), output).Product()
			return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
		}, o)
}

// Tolerance returns the maximum relative difference between a loss and the stored loss. Sums are
// computed in a different order on several devices and on a TPU. A TPU also multiplies float32 in
// six bfloat16 passes with a relative error of about 2^-22, which grows with the steps. bfloat16
// rounds each activation to 2^-9, at places that depend on the platform's fusions.
func Tolerance(platform, losses string) float64 {
	switch {
	case losses == "bfloat16":
		return 0.05
	case platform == "cpu":
		return 1e-4
	}
	return 5e-3
}

// runTraining runs the training and returns the loss of each step. It also returns the time until
// the first step completes, and the average time of timedSteps additional steps that are launched
// without waiting.
func runTraining(ctx context.Context, s *strategy.TPUStrategy, losses string) (all []float64, first, each time.Duration,
	err error) {
	step, err := trainingStep(s, losses)
	if err != nil {
		return nil, 0, 0, err
	}
	began := time.Now()
	for i := range trainSteps {
		value, err := runTrainStep(ctx, step, i)
		if err != nil {
			return nil, 0, 0, fmt.Errorf("step %d: %w", i, err)
		}
		if all = append(all, value); i == 0 {
			first = time.Since(began)
		}
	}
	x, y := trainingBatch(trainSteps)
	began = time.Now()
	var last *strategy.Mirrored
	for range timedSteps {
		if last, err = step.Run(ctx, x, y); err != nil {
			return nil, 0, 0, err
		}
	}
	err = last.Ready(ctx)
	return all, first, time.Since(began) / timedSteps, err
}

// timedSteps is the number of steps over which the step time is averaged.
const timedSteps = 50

// runTrainStep runs training step i and returns its loss.
func runTrainStep(ctx context.Context, step *train.Step, i int) (float64, error) {
	x, y := trainingBatch(i)
	loss, err := step.Run(ctx, x, y)
	if err != nil {
		return 0, err
	}
	return loss.Float64(ctx)
}

// checkTraining runs the training in each configuration and compares the losses with the stored
// losses.
func checkTraining(ctx context.Context, w *partRun) error {
	want, err := readStoredLosses()
	if err != nil {
		return err
	}
	slices := w.system().Topology().NumSlices()
	all := trainCases(w.numDevices(), slices)
	if slices > 1 {
		w.addFact("left out", "state in parts over %d slices, which libtpu cannot compile", slices)
	}
	if w.session.opts.Quick {
		all = []trainCase{all[0], all[len(all)-1]}
	}
	for _, c := range all {
		w.setActivity("%s", c.name)
		if err := w.runTrainCase(ctx, c, want.Losses[c.losses]); err != nil {
			w.addFailure("%s: %v", c.name, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (w *partRun) runTrainCase(ctx context.Context, c trainCase, want []float64) (err error) {
	s, err := w.newStrategy(c.strategy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	got, first, each, err := runTraining(ctx, s, c.losses)
	if err != nil {
		return err
	}
	if seam := w.session.opts.Hooks.ChangeResult; seam != nil {
		for i := range got {
			b := math.Float64bits(got[i])
			data := []byte{byte(b >> 48), byte(b >> 56)}
			seam(w.session.report.Host, w.part.Name, c.name, data)
			got[i] = math.Float64frombits(b&(1<<48-1) | uint64(data[0])<<48 | uint64(data[1])<<56)
		}
	}
	limit, worst, at := Tolerance(w.system().Platform(), c.losses), 0.0, 0
	for i, loss := range got {
		if off := math.Abs(loss-want[i]) / want[i]; off > worst || math.IsNaN(off) {
			worst, at = off, i
			if math.IsNaN(off) {
				break
			}
		}
	}
	if !(worst <= limit) {
		w.addFailure("%s: the loss of step %d is %g, and %g is right: off by %.2g, more than %g", c.name, at, got[at],
			want[at], worst, limit)
	}
	w.addMeasurement(Measurement{Name: c.name + ", greatest difference of a loss", Value: worst, Unit: "of it"})
	w.addMeasurement(Measurement{Name: c.name + ", first step with compilation", Value: first.Seconds(), Unit: "s"})
	w.addMeasurement(Measurement{Name: c.name + ", a step", Value: each.Seconds() * 1e3, Unit: "ms"})
	return nil
}
