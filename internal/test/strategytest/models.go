package strategytest

import (
	"cmp"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Annotated returns the loss of a regression model with 8 features for p logical devices. The model
// uses every kind of annotation.
func Annotated(p int) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := layers.Dense(rc.Scope("hidden"), in[0], true, 16)
		h = graph.Tanh(logical.Split(h, 1, p))
		h = logical.OnDevice(p-1, h, func(h *graph.Node) *graph.Node {
			return graph.Add(h, graph.Tanh(layers.Dense(rc.Scope("expert"), h, true, 16)))
		})
		h = logical.Assign(h, p/2)
		y := logical.Replicate(layers.Dense(rc.Scope("output"), h, true, 1))
		return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
	}
}

// AnnotatedRules returns rules that split the variables of [Annotated] over p logical devices.
func AnnotatedRules(p int) logical.Rules {
	return logical.Rules{
		logical.Match(`hidden/.*weights`, logical.SplitInto(1, p)),
		logical.Match(`output/.*weights`, logical.SplitInto(p, 1)),
	}
}

// AnnotatedOptions returns options for [Annotated] on 2 replicas with 2 logical devices each.
func AnnotatedOptions() strategy.Options {
	return strategy.Options{Replicas: 2, LogicalDevices: 2, Variables: AnnotatedRules(2)}
}

// AnnotatedStep returns a training step of [Annotated] with a new store.
func AnnotatedStep(s *strategy.TPUStrategy) *train.Step { return AnnotatedOver(s, SeededStore()) }

// AnnotatedOver returns a training step of [Annotated] with the given store.
func AnnotatedOver(s *strategy.TPUStrategy, store *model.Store) *train.Step {
	return OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), Annotated(s.NumLogicalDevices()),
		train.Options{}))
}

// SeededStore returns an empty store that initializes variables from a fixed seed.
func SeededStore() *model.Store {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	return store
}

// Batch returns a batch of 32 rows for [Annotated]. Its contents depend on step.
func Batch(step int) (x, y *tensors.Tensor) {
	xs, ys := make([]float32, 32*8), make([]float32, 32)
	for i := range xs {
		xs[i] = float32((i*7+step*13)%17)/17 - 0.5
		ys[i/8] += xs[i]
	}
	return tensors.FromFlatDataAndDimensions(xs, 32, 8), tensors.FromFlatDataAndDimensions(ys, 32, 1)
}

// BatchShapes returns the shapes of a batch of [Annotated].
func BatchShapes(rows int) (x, y shapes.Shape) {
	return shapes.Make(dtypes.Float32, rows, 8), shapes.Make(dtypes.Float32, rows, 1)
}

// Losses runs training steps on the batches from, from+1, ..., to-1 and returns their losses.
func Losses(t testing.TB, step *train.Step, from, to int) (all []float64) {
	t.Helper()
	for i := from; i < to; i++ {
		x, y := Batch(i)
		loss, err := step.Run(t.Context(), x, y)
		require.NoError(t, err)
		value, err := loss.Float64(t.Context())
		require.NoError(t, err)
		all = append(all, value)
	}
	return all
}

// Batches returns n batches, which start at the batch of the given step. Each batch is the argument
// list of a step.
func Batches(step, n int) (batches [][]any) {
	for i := range n {
		x, y := Batch(step + i)
		batches = append(batches, []any{x, y})
	}
	return batches
}

// LoopLosses runs the given number of loops of n steps each, and returns the loss of the last step of
// each loop.
func LoopLosses(t testing.TB, step *train.Step, n, loops int) (all []any) {
	t.Helper()
	for i := range loops {
		last, err := step.RunSteps(t.Context(), Batches(i*n, n)...)
		require.NoError(t, err)
		loss, err := last.Float64(t.Context())
		require.NoError(t, err)
		all = append(all, loss)
	}
	return all
}

// Sums returns a batch of rows of small numbers and the sum of each row.
func Sums(rows, columns int) (x, y *tensors.Tensor) {
	xs, ys := make([]float32, rows*columns), make([]float32, rows)
	for i := range xs {
		xs[i] = float32(i%7) - 3
		ys[i/columns] += xs[i]
	}
	return tensors.FromFlatDataAndDimensions(xs, rows, columns), tensors.FromFlatDataAndDimensions(ys, rows, 1)
}

// Regression returns n random batches of 32 rows for [Annotated]. The targets are weighted sums of
// the features.
func Regression(rng *rand.Rand, n int) (xs, ys []*tensors.Tensor) {
	for range n {
		x, y := make([]float32, 32*8), make([]float32, 32)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
			y[i/8] += x[i] * float32(i%8) / 8
		}
		xs = append(xs, tensors.FromFlatDataAndDimensions(x, 32, 8))
		ys = append(ys, tensors.FromFlatDataAndDimensions(y, 32, 1))
	}
	return xs, ys
}

// Normals returns a float32 tensor of normally distributed numbers.
func Normals(rng *rand.Rand, dims ...int) *tensors.Tensor {
	flat := make([]float32, shapes.Make(dtypes.Float32, dims...).Size())
	for i := range flat {
		flat[i] = float32(rng.NormFloat64())
	}
	return tensors.FromFlatDataAndDimensions(flat, dims...)
}

// Classes returns an int32 tensor of random class indices less than n.
func Classes(rng *rand.Rand, n int, dims ...int) *tensors.Tensor {
	flat := make([]int32, shapes.Make(dtypes.Int32, dims...).Size())
	for i := range flat {
		flat[i] = int32(rng.IntN(n))
	}
	return tensors.FromFlatDataAndDimensions(flat, dims...)
}

// Linear is the loss of a linear model with weights of shape [2, 2] and a bias of shape [2].
func Linear(w, b *graph.Node, in []*graph.Node) *graph.Node {
	return graph.ReduceAllMean(graph.Square(graph.Sub(graph.Add(graph.MatMul(in[0], w), graph.ExpandLeftToRank(b, 2)),
		in[1])))
}

// Initial weights and a batch of 4 rows for [Linear].
var (
	LinearW = [][]float32{{0.5, -1}, {0.25, 2}}
	LinearX = [][]float32{{1, 2}, {-3, 1}, {0.5, -1}, {2, 2}}
	LinearY = [][]float32{{1, 0}, {0, 1}, {-1, 2}, {2, 1}}
)

// Flat returns the elements of a float32 variable.
func Flat(t testing.TB, v *strategy.Variable) []float32 {
	t.Helper()
	value, err := v.Value(t.Context())
	require.NoError(t, err)
	return tensors.MustCopyFlatData[float32](value)
}

// Share returns a rule that applies the given sharding mode to the state of all variables with at
// least the given number of elements. If state is zero, the rule disables state sharding.
func Share(state logical.StateSharding, smallest int) logical.Rules {
	return logical.Rules{{Pattern: regexp.MustCompile(""), State: cmp.Or(state, logical.ShardNothing),
		MinElements: smallest}}
}
