package strategy_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/lstm"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestReductionsUseTheRealRows(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	x, err := s.PerReplica(ctx, []any{[]float32{5, 6}, []float32{7}}, logical.Annotation{})
	require.NoError(t, err)
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := in[0]
		rows := graph.Const(x.Graph(), float32(x.Shape().Dimensions[0]))
		return []*graph.Node{
			graph.ReduceAllMean(x), graph.ReduceAllSum(x), graph.ReduceAllMax(graph.Neg(x)), graph.MulScalar(x, 2), rows,
			graph.ReduceAllSum(graph.OnesLike(x)), graph.CumSum(x, 0), graph.ArgMin(x, 0), graph.AddScalar(graph.ReduceAllSum(x),
				2),
			graph.ReduceVariance(x), graph.Softmax(x, 0),
		}
	}, strategy.FunctionOptions{Padding: strategy.MaskPadding})
	out, err := f.Run(ctx, x)
	require.NoError(t, err)
	for i, want := range [][]any{
		{float32(5.5), float32(7)}, {float32(11), float32(7)}, {float32(-5), float32(-7)}, {[]float32{10, 12}, []float32{14}},
		{float32(2), float32(1)}, {float32(2), float32(1)}, {[]float32{5, 11}, []float32{7}}, {int32(0), int32(0)},
		{float32(13), float32(9)},
		{float32(0.25), float32(0)},
	} {
		assert.Equal(t, want, strategytest.Values(t, out[i], 2), "result %d", i)
	}
	soft := strategytest.Values(t, out[10], 2)
	assert.Equal(t, []float32{1}, soft[1])
	assert.InDelta(t, 1/(1+math.E), soft[0].([]float32)[0], 1e-6)
	// A result is truncated wherever it is used.
	mean, err := s.Reduce(ctx, strategy.Mean, out[3], 0)
	require.NoError(t, err)
	value, err := mean.Float64(ctx)
	require.NoError(t, err)
	assert.Equal(t, 12.0, value)
	all, err := s.Gather(ctx, out[3], 0)
	require.NoError(t, err)
	rows, err := all.Local(ctx, 0)
	require.NoError(t, err)
	assert.Equal(t, []float32{10, 12, 14}, rows.Value())
	again, err := f.Run(ctx, out[3])
	require.NoError(t, err)
	assert.Equal(t, []any{float32(11), float32(14)}, strategytest.Values(t, again[0], 2))
	bound, err := f.Bind(ctx, x)
	require.NoError(t, err)
	defer bound.Close()
	require.NoError(t, bound.Launch(ctx))
	assert.Equal(t, []any{[]float32{10, 12}, []float32{14}}, strategytest.Values(t, bound.Results()[3], 2))
}

// A padded model, with its function and its batch.
type paddedModel struct {
	loss  train.Loss
	batch func(rng *rand.Rand, rows int) []*tensors.Tensor
	// apart is set if each replica is normalized separately.
	apart bool
	l2    bool
}

func squared(rc *strategy.ReplicaContext, y, want *graph.Node) *graph.Node {
	return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("head"), y, true, 1), want)))
}

var paddedModels = map[string]paddedModel{
	"dense": {
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return squared(rc, graph.Tanh(layers.Dense(rc.Scope("a"), in[0], true, 8)), in[1])
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Normals(rng, n, 4), strategytest.Normals(rng, n, 1)}
		},
	},
	"embedding, cross entropy": {
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := layers.Embedding(rc.Scope("a"), in[0], dtypes.Float32, 11, 6) // [n, 5, 6]
			h = graph.Reshape(h, h.Shape().Dimensions[0], -1)
			logits := layers.Dense(rc.Scope("head"), h, true, 7)
			return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{in[1]}, []*graph.Node{logits}))
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Classes(rng, 11, n, 5), strategytest.Classes(rng, 7, n, 1)}
		},
	},
	"tokens in one row": { // [n, T] -> [n*T]
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := layers.Embedding(rc.Scope("a"), in[0], dtypes.Float32, 11, 6)
			h = graph.Reshape(h, -1, 6)
			logits := layers.Dense(rc.Scope("head"), h, true, 7)
			labels := graph.Reshape(in[1], -1, 1)
			return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{labels}, []*graph.Node{logits}))
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Classes(rng, 11, n, 5), strategytest.Classes(rng, 7, n, 5)}
		},
	},
	"convolution": {
		l2: true,
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := layers.Convolution(rc.Scope("a"), in[0]).Channels(5).KernelSize(3).PadSame().Done()
			h = graph.MaxPool(graph.Tanh(h)).Window(2).Done()
			h = layers.Convolution(rc.Scope("b"), h).Channels(4).KernelSize(2).Strides(2).Done()
			h = graph.MeanPool(h).Window(2).NoPadding().Done()
			return squared(rc, graph.Reshape(h, h.Shape().Dimensions[0], -1), in[1])
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Normals(rng, n, 8, 8, 3), strategytest.Normals(rng, n, 1)}
		},
	},
	"layer norm, residual": {
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := layers.Dense(rc.Scope("a"), in[0], true, 8)
			h = graph.Add(h, graph.Tanh(layers.Dense(rc.Scope("b"), norm.LayerNorm(rc.Scope("n"), h, -1).Done(), true, 8)))
			return squared(rc, h, in[1])
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Normals(rng, n, 4), strategytest.Normals(rng, n, 1)}
		},
	},
	"batch norm": {
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := layers.Dense(rc.Scope("a"), in[0], true, 8)
			h = graph.Tanh(norm.BatchNorm(rc.Scope("n"), h, -1).CurrentScope().Done())
			return squared(rc, h, in[1])
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Normals(rng, n, 4), strategytest.Normals(rng, n, 1)}
		},
		apart: true,
	},
	"batch norm by the backend's op": {
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := layers.Convolution(rc.Scope("a"), in[0]).Channels(5).KernelSize(3).PadSame().Done()
			h = graph.Tanh(norm.BatchNorm(rc.Scope("n"), h, -1).CurrentScope().UseBackendInference(true).Done())
			return squared(rc, graph.Reshape(h, h.Shape().Dimensions[0], -1), in[1])
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Normals(rng, n, 4, 4, 2), strategytest.Normals(rng, n, 1)}
		},
		apart: true,
	},
	"attention": {
		l2: true,
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := attention.SelfAttention(rc.Scope("a"), in[0], 2, 4).Done()
			return squared(rc, graph.ReduceMean(h, 1), in[1])
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Normals(rng, n, 6, 8), strategytest.Normals(rng, n, 1)}
		},
	},
	"lstm": {
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h, _, _ := lstm.New(rc.Scope("a"), in[0], 4).Done()
			return squared(rc, graph.ReduceMean(h, 0, 1), in[1])
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Normals(rng, n, 3, 5), strategytest.Normals(rng, n, 1)}
		},
	},
	"half precision": {
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := graph.ConvertDType(in[0], dtypes.BFloat16)
			h = graph.Tanh(layers.Dense(rc.Scope("a"), h, true, 8))
			return squared(rc, graph.ConvertDType(h, dtypes.Float32), in[1])
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Normals(rng, n, 4), strategytest.Normals(rng, n, 1)}
		},
	},
	"contrast of rows": { // [n, n]
		loss: func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := layers.Dense(rc.Scope("a"), in[0], true, 8)
			p := graph.Softmax(graph.DotGeneral(h, []int{1}, nil, h, []int{1}, nil), -1)
			return graph.ReduceAllMean(graph.Square(graph.Sub(graph.Dot(p, in[1]).Product(), in[1])))
		},
		batch: func(rng *rand.Rand, n int) []*tensors.Tensor {
			return []*tensors.Tensor{strategytest.Normals(rng, n, 4), strategytest.Normals(rng, n, 1)}
		},
		apart: true,
	},
}

// take returns the rows from, ..., to-1 of each tensor.
func take(batch []*tensors.Tensor, from, to int) []any {
	var all []any
	for _, x := range batch {
		shape := x.Shape().Clone()
		row := int(x.Shape().ByteSize()) / shape.Dimensions[0]
		shape.Dimensions[0] = to - from
		part := tensors.FromShape(shape)
		if to > from {
			_ = x.ConstBytes(func(data []byte) {
				_ = part.MutableBytes(func(into []byte) { copy(into, data[from*row:to*row]) })
			})
		}
		all = append(all, part)
	}
	return all
}

// poisoned copies a batch to the replicas, with NaN and out-of-range positions as padding.
func poisoned(t *testing.T, s *strategy.TPUStrategy, batch []*tensors.Tensor, sizes []int, padded int) []any {
	t.Helper()
	ctx := context.Background()
	var args []any
	for i := range batch {
		var values []any
		var real [][]int
		at := 0
		for r, n := range sizes {
			part := take(batch[i:i+1], at, at+n)[0].(*tensors.Tensor)
			at += n
			shape := part.Shape().Clone()
			real = append(real, slices.Clone(shape.Dimensions))
			shape.Dimensions[0] = padded
			whole := tensors.FromShape(shape)
			_ = whole.MutableFlatData(func(flat any) {
				switch flat := flat.(type) {
				case []float32:
					for j := range flat {
						flat[j] = []float32{float32(math.NaN()), float32(math.Inf(1)), 1e38}[(j+r)%3]
					}
				case []int32:
					for j := range flat {
						flat[j] = []int32{math.MaxInt32, -1, 3}[(j+r)%3]
					}
				}
			})
			if n > 0 {
				_ = part.ConstBytes(func(from []byte) { _ = whole.MutableBytes(func(to []byte) { copy(to, from) }) })
			}
			values = append(values, whole)
		}
		v, err := s.PerReplica(ctx, values, logical.Annotation{})
		require.NoError(t, err)
		args = append(args, strategy.Ragged(v, real))
	}
	return args
}

// oneStep trains one step of a new model and returns its loss and variables.
func oneStep(t *testing.T, s *strategy.TPUStrategy, m paddedModel, batches ...[]any) (losses []float64,
	variables map[string][]float64) {
	t.Helper()
	ctx := context.Background()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	if m.l2 {
		store.SetParam(regularizer.ParamL2, 1e-2)
	}
	step := strategytest.OK(train.New(s, store,
		optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done(), m.loss, train.Options{}))
	for _, batch := range batches {
		loss, err := step.Run(ctx, batch...)
		require.NoError(t, err)
		value, err := loss.Float64(ctx)
		require.NoError(t, err)
		losses = append(losses, value)
	}
	variables = map[string][]float64{}
	for _, v := range s.Variables(store).All() {
		if !v.Shape().DType.IsFloat() {
			continue
		}
		value, err := v.Value(ctx)
		require.NoError(t, err)
		var numbers []float64
		require.NoError(t, value.ConstFlatData(func(flat any) {
			switch flat := flat.(type) {
			case []float32:
				for _, x := range flat {
					numbers = append(numbers, float64(x))
				}
			case []bfloat16.BFloat16:
				for _, x := range flat {
					numbers = append(numbers, float64(x.Float32()))
				}
			}
		}))
		variables[v.Path()] = numbers
	}
	return losses, variables
}

// A step on an uneven batch has the same loss and variables as a step on its rows without padding
// on one device. The padding is NaN.
func TestUnevenBatchesTrainWithTheExactMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	one := strategytest.New(t, 1, 1)
	for name, m := range paddedModels {
		all := [][]int{{4, 3, 1, 0}}
		if len(name)%3 == 0 { // compilation is slow
			all = [][]int{{2, 1}, {3, 0}}
		}
		for _, sizes := range all {
			t.Run(fmt.Sprint(name, sizes), func(t *testing.T) {
				total := 0
				for _, n := range sizes {
					total += n
				}
				batch := m.batch(rng, total)
				want, variables := 0.0, map[string][]float64{}
				if !m.apart {
					var losses []float64
					losses, variables = oneStep(t, one, m, take(batch, 0, total))
					want = losses[0]
				} else { // the weighted mean of the replicas' own steps
					at := 0
					for _, n := range sizes {
						if n == 0 {
							continue
						}
						losses, part := oneStep(t, one, m, take(batch, at, at+n))
						at += n
						share := float64(n) / float64(total)
						want += share * losses[0]
						for path, numbers := range part {
							if variables[path] == nil {
								variables[path] = make([]float64, len(numbers))
							}
							for i, x := range numbers {
								variables[path][i] += share * x
							}
						}
					}
				}
				s := strategytest.On(t, plugintest.System(t, len(sizes)), strategy.Options{Replicas: len(sizes)})
				losses, got := oneStep(t, s, m, poisoned(t, s, batch, sizes, slices.Max(sizes)))
				near := 2e-5
				if name == "half precision" {
					near = 1. / 64
				}
				assert.InDelta(t, want, losses[0], near*(1+math.Abs(want)))
				require.Equal(t, len(variables), len(got))
				for path, numbers := range variables {
					for i, x := range numbers {
						if math.Abs(got[path][i]-x) > near*(1+math.Abs(x)) || got[path][i] != got[path][i] {
							t.Fatalf("%s[%d] is %v, want %v", path, i, got[path][i], x)
						}
					}
				}
			})
		}
	}
}
