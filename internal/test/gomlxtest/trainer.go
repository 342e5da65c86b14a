package gomlxtest

import (
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Trainer tests GoMLX's Trainer and Loop with distributed datasets. The backend must have at least
// 8 devices.
func Trainer(t *testing.T, b compute.Backend) {
	run(t, b, []testCase{
		{"auto-sharding, as one device", trainAuto},
		{"auto-sharding, dropout and a first seed", trainDropout},
		{"a generator's state set before", trainState},
		{"SPMD, gradients all-reduced", trainSPMD},
		{"a split variable", trainSplit},
		{"evaluation", evaluate},
		{"accumulated gradients", accumulate},
	})
}

// rows is the number of rows of the data. global is the number of rows of a batch for all devices.
const rows, global = 64, 16

// samples returns data that a model can learn.
func samples() (x, y [][]float32) {
	random := rand.New(rand.NewSource(11))
	for range rows {
		row := make([]float32, 4)
		var sum float64
		for i := range row {
			row[i] = random.Float32()*2 - 1
			sum += float64(row[i]) * float64(i+1)
		}
		x, y = append(x, row), append(y, []float32{float32(math.Tanh(sum))})
	}
	return x, y
}

// batches returns an infinite dataset of the samples in batches of the given size.
func batches(t testing.TB, b compute.Backend, size int) *dataset.InMemoryDataset {
	t.Helper()
	x, y := samples()
	ds, err := dataset.InMemoryFromData(b, "samples", []any{x}, []any{y})
	require.NoError(t, err)
	t.Cleanup(ds.FinalizeAll)
	return ds.BatchSize(size, true).Infinite(true)
}

// distribute returns a dataset of batches for all devices. The batches are split over the first
// axis of the mesh.
func distribute(t testing.TB, b compute.Backend, source train.Dataset, m *distributed.DeviceMesh,
	strategy distributed.Strategy) train.Dataset {
	t.Helper()
	spec := []*distributed.ShardingSpec{split(t, m, m.AxesNames()[0])}
	ds, err := dataset.NewDistributedAccumulator(b, source, strategy, spec, spec, nil)
	require.NoError(t, err)
	return ds
}

// learner is a model with two layers.
func learner(scope *model.Scope, x *graph.Node) *graph.Node {
	hidden := graph.Tanh(layers.Dense(scope.In("hidden"), x, true, 8))
	return layers.Dense(scope.In("output"), hidden, true, 1)
}

// trained contains the losses and the variables of a training run.
type trained struct {
	losses []float32
	store  *model.Store
}

// fit trains a model for some steps. The initial values are always the same.
func fit(t testing.TB, b compute.Backend, ds train.Dataset, steps int, opt optimizer.Interface,
	body func(*model.Scope, *graph.Node) *graph.Node, prepare func(*model.Store, *train.Trainer)) (trained, error) {
	t.Helper()
	out := trained{store: model.NewStore()}
	out.store.SetParam(model.ParamInitialSeed, int64(9))
	trainer := train.NewTrainer(b, out.store, func(scope *model.Scope, x *graph.Node) *graph.Node {
		return body(scope,
			x)
	},
		loss.MeanSquaredError, opt, nil, nil)
	if prepare != nil {
		prepare(out.store, trainer)
	}
	loop := train.NewLoop(trainer)
	loop.OnStep("losses", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
		out.losses = append(out.losses, metrics[0].Value().(float32))
		return nil
	})
	_, err := loop.RunSteps(ds, steps)
	return out, err
}

// same checks that two training runs have the same losses and variables.
func same(t testing.TB, want, got trained) {
	t.Helper()
	require.Len(t, got.losses, len(want.losses))
	for i := range want.losses {
		require.InDelta(t, want.losses[i], got.losses[i], 1e-5, "step %d", i)
	}
	require.NotEqual(t, got.losses[len(got.losses)-1], got.losses[0])
	for v := range want.store.IterVariables() {
		if strings.HasPrefix(v.Path(), "/"+metric.Scope) {
			continue // the names of metrics differ between trainers
		}
		other := got.store.GetVariable(v.Path())
		require.NotNil(t, other, v.Path())
		if v.DType() != dtypes.Float32 {
			continue
		}
		require.True(t, v.Shape().Equal(other.Shape()), v.Path())
		assert.InDeltaSlice(t, flattened(t, v), flattened(t, other), 2e-5, v.Path())
	}
}

func flattened(t testing.TB, v *model.Variable) []float32 {
	t.Helper()
	value, err := v.Value()
	require.NoError(t, err)
	var out []float32
	require.NoError(t, tensors.ConstFlatData(value, func(flat []float32) { out = append(out, flat...) }))
	return out
}

func adam() optimizer.Interface { return optimizer.Adam().LearningRate(0.02).Done() }

func trainAuto(t *testing.T, b compute.Backend) {
	want, err := fit(t, b, batches(t, b, global), 6, adam(), learner, nil)
	require.NoError(t, err)
	ds := distribute(t, b, batches(t, b, global/4), mesh(t, []int{4, 2}, "replica", "logical"), distributed.AutoSharding)
	got, err := fit(t, b, ds, 6, adam(), learner, nil)
	require.NoError(t, err)
	same(t, want, got)
}

func trainDropout(t *testing.T, b compute.Backend) {
	body := func(scope *model.Scope, x *graph.Node) *graph.Node {
		x = layers.Dense(scope.In("first"), x, true, 8)
		x = layers.Dropout(scope, x, graph.Scalar(x.Graph(), dtypes.Float32, 0.25))
		return layers.Dense(scope.In("second"), graph.Tanh(x), true, 1)
	}
	want, err := fit(t, b, batches(t, b, global), 4, adam(), body, nil)
	require.NoError(t, err)
	m := mesh(t, []int{8}, "replica")
	got, err := fit(t, b, distribute(t, b, batches(t, b, global/8), m, distributed.AutoSharding), 4, adam(), body, nil)
	require.NoError(t, err)
	same(t, want, got)
}

// trainState sets the random state before the Trainer knows the mesh. GoMLX creates a variable for
// the random state that is in no store and therefore must have its own sharding.
func trainState(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{8}, "replica")
	prepare := func(store *model.Store, _ *train.Trainer) {
		require.NoError(t, store.SetRNGStateFromSeed(3))
		store.GetVariable("/" + model.RNGStateVariableName).WithShardingSpec(distributed.NewReplicatedShardingSpec(m))
	}
	body := func(scope *model.Scope, x *graph.Node) *graph.Node {
		return learner(scope, graph.Add(x, scope.RandomNormal(x.Graph(), x.Shape())))
	}
	ds := distribute(t, b, batches(t, b, global/8), m, distributed.AutoSharding)
	_, err := fit(t, b, ds, 3, adam(), body, prepare)
	require.NoError(t, err)
}

// summing is an optimizer for SPMD. It averages the gradients of all devices.
type summing struct {
	optimizer.Interface
	devices float64
}

func (o summing) UpdateGraph(scope *model.Scope, g *graph.Graph, theLoss *graph.Node) {
	grads := scope.BuildTrainableVariablesGradientsGraph(theLoss)
	grads = g.Distributed().AllReduce(grads, compute.ReduceOpSum)
	for i, grad := range grads {
		grads[i] = graph.DivScalar(grad, o.devices)
	}
	o.Interface.(train.OptimizeWithGradients).UpdateGraphWithGradients(scope, grads, theLoss.DType())
}

// trainSPMD trains replicas of a program that all-reduces its gradients. The variables must be
// equal to those of one device. The losses are not compared, because GoMLX returns only the loss of
// device 0.
func trainSPMD(t *testing.T, b compute.Backend) {
	want, err := fit(t, b, batches(t, b, global), 4, adam(), learner, nil)
	require.NoError(t, err)
	m := mesh(t, []int{8}, "replica")
	ds := distribute(t, b, batches(t, b, global/8), m, distributed.SPMD)
	got, err := fit(t, b, ds, 4, summing{adam(), 8}, learner, nil)
	require.NoError(t, err)
	require.Len(t, got.losses, 4)
	for _, path := range []string{"/hidden/dense/weights", "/hidden/dense/biases", "/output/dense/weights",
		"/output/dense/biases"} {
		assert.InDeltaSlice(t, flattened(t, want.store.GetVariable(path)), flattened(t, got.store.GetVariable(path)), 2e-5,
			path)
	}
}

// trainSplit trains a sharded variable. By default, GoMLX's Trainer requests replicated results,
// including updated variables, and then passes them as shards to the next step. The hook removes
// this request, so that updated variables keep their sharding.
func trainSplit(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{4, 2}, "replica", "logical")
	columns := split(t, m, "", "logical")
	sgd := func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithLearningRate(0.1).Done() }
	weights := func(store *model.Store) *model.Variable {
		return store.VariableWithValue("/hidden/dense/weights", numbers(4, 8, -0.1))
	}
	want, err := fit(t, b, batches(t, b, global), 4, sgd(), learner, func(store *model.Store,
		_ *train.Trainer) {
		weights(store)
	})
	require.NoError(t, err)
	prepare := func(store *model.Store, trainer *train.Trainer) {
		weights(store).WithShardingSpec(columns)
		trainer.OnExecCreation(func(exec *model.Exec, _ train.GraphType) { exec.WithOutputShardingSpecs() })
	}
	ds := distribute(t, b, batches(t, b, global/4), m, distributed.AutoSharding)
	got, err := fit(t, b, ds, 4, sgd(), learner, prepare)
	require.NoError(t, err)
	same(t, want, got)
	assert.Equal(t, []int{4, 4}, got.store.GetVariable("/hidden/dense/weights").ShardShape().Dimensions)
}

func evaluate(t *testing.T, b compute.Backend) {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(9))
	mean := metric.NewMeanMetric("Mean Output", "#out", "mean", func(_ *model.Scope, _,
		predictions []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(predictions[0])
	}, nil)
	trainer := train.NewTrainer(b, store, learner, loss.MeanSquaredError, adam(), nil, []metric.Interface{mean})
	m := mesh(t, []int{8}, "replica")
	ds := distribute(t, b, batches(t, b, global/8).Infinite(false), m, distributed.AutoSharding)
	got, err := trainer.Eval(ds)
	require.NoError(t, err)
	one := train.NewTrainer(b, store, learner, loss.MeanSquaredError, adam(), nil, []metric.Interface{mean})
	want, err := one.Eval(batches(t, b, global).Infinite(false))
	require.NoError(t, err)
	require.Len(t, got, 2)
	for i := range want {
		assert.InDelta(t, want[i].Value(), got[i].Value(), 1e-5)
	}
}

// accumulate tests that GoMLX's Trainer does not support gradient accumulation with distribution.
func accumulate(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{8}, "replica")
	ds := distribute(t, b, batches(t, b, global/8), m, distributed.AutoSharding)
	_, err := fit(t, b, ds, 2, adam(), learner, func(_ *model.Store, trainer *train.Trainer) {
		require.NoError(t, trainer.AccumulateGradients(2))
	})
	require.ErrorContains(t, err, "not implemented yet")
}
