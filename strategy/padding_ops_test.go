package strategy_test

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/fnn"
	"github.com/gomlx/gomlx/ml/layers/lstm"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// rowOps are functions of a batch x of shape [n, 6] and labels of shape [n, 1] from 0 to 5. The
// test compares their results, and the gradients of the results' sums.
var rowOps = map[string]func(rc *strategy.ReplicaContext, x, labels *graph.Node) *graph.Node{
	"softmax":         func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return graph.Softmax(x, -1) },
	"softmax of rows": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return graph.Softmax(x, 0) },
	"log softmax":     func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return graph.LogSoftmax(x, 0) },
	"variance": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.ReduceVariance(x,
			0)
	},
	"skewness": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.ReduceSkewness(x,
			0)
	},
	"norm":           func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return graph.L2Norm(x, 0) },
	"normalize":      func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return graph.L2Normalize(x, 0) },
	"normalize rows": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return graph.L2Normalize(x, 1) },
	"max":            func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return graph.ReduceMax(x, 0) },
	"min":            func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return graph.ReduceMin(x, 0) },
	"product": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.ReduceMultiply(graph.StopGradient(x), 0)
	},
	"logical and": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return asNumber(graph.ReduceLogicalAnd(graph.IsPositive(x), 0))
	},
	"logical or": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return asNumber(graph.ReduceLogicalOr(graph.IsPositive(x), 0))
	},
	"arg max": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return asNumber(graph.ArgMax(graph.StopGradient(x), 0))
	},
	"arg min of a row": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return asNumber(graph.ArgMin(graph.StopGradient(x), 1))
	},
	"sort of a row": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.Sort(graph.StopGradient(x), 1, true)
	},
	"top of a row": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		top, _ := graph.TopK(graph.StopGradient(x), 2, 1)
		return top
	},
	"cumulative sum": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.CumSum(graph.StopGradient(x), 0)
	},
	"one hot": func(_ *strategy.ReplicaContext, x, l *graph.Node) *graph.Node {
		return graph.Mul(x, graph.OneHot(graph.Squeeze(l, 1), 6, x.DType()))
	},
	"masked mean": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.MaskedReduceMean(x, graph.IsPositive(x), 0)
	},
	"masked mean all": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.MaskedReduceAllMean(x, graph.IsPositive(x))
	},
	"cosines": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.CosineSimilarity(x, graph.Square(x), -1)
	},
	"einsum": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.Einsum("bi,bj->ij", x, graph.Tanh(x))
	},
	"outer": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.Einsum("bi,bj->bij", x, x)
	},
	"gram": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return graph.Einsum("ai,bi->ab", x, x) },
	"broadcast": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMean, 0))
	},
	"stack": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.Stack([]*graph.Node{x, graph.Neg(x)}, 1)
	},
	"split": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		parts := graph.Split(x, 1, 3)
		return graph.Mul(parts[0], parts[2])
	},
	"groups": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.ReduceMax(graph.Reshape(x, -1, 3, 2), 1)
	},
	"flat": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.ReduceVariance(graph.Reshape(x, -1))
	},
	"diagonal": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.Mul(graph.Einsum("ai,bi->ab", x, x), asNumber(graph.Diagonal(x.Graph(), x.Shape().Dimensions[0])))
	},
	"triangle": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.TakeLowerTriangular(graph.Einsum("ai,bi->ab", x, x), 0)
	},
	"row shift": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.ShiftWithScalar(x, 1, graph.ShiftDirRight, 1, 0.0)
	},
	"gather rows": func(_ *strategy.ReplicaContext, x, l *graph.Node) *graph.Node {
		last := graph.Const(x.Graph(), int32(x.Shape().Dimensions[0]-1))
		return graph.Gather(x, graph.Min(l, last))
	},
	"spectrum": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.Abs(graph.FFT(graph.ConvertDType(graph.StopGradient(x), dtypes.Complex64)))
	},
	"dense": func(rc *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return layers.Dense(rc.Scope("dense"), x, true, 3, 2)
	},
	"fnn": func(rc *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return fnn.New(rc.Scope("fnn"), x, 3).NumHiddenLayers(2, 4).Normalization("layer").Done()
	},
	"rms norm": func(rc *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return norm.RMSNorm(rc.Scope("rms"), x).Done()
	},
	"layer norm": func(rc *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return norm.LayerNorm(rc.Scope("norm"), x, -1).Done()
	},
	"dynamic tanh": func(rc *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return norm.DynamicTanh(rc.Scope("dyt"), x).Done()
	},
	"embedding": func(rc *strategy.ReplicaContext, _, l *graph.Node) *graph.Node {
		return layers.Embedding(rc.Scope("table"), l, dtypes.Float32, 6, 4)
	},
	"causal": func(rc *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return attention.SelfAttention(rc.Scope("causal"), graph.Reshape(x, -1, 3, 2), 2, 4).WithCausalMask(true).Done()
	},
	"both directions": func(rc *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		out, _, _ := lstm.New(rc.Scope("lstm"), graph.Reshape(x, -1, 3, 2), 2).Direction(lstm.DirBidirectional).Done()
		return out
	},
	"convolution in one dimension": func(rc *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return layers.Convolution(rc.Scope("conv"), graph.Reshape(x, -1, 3, 2)).Channels(3).KernelSize(2).PadSame().Done()
	},
	"mean pool, padded": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.MeanPool(graph.Reshape(x, -1, 3, 2)).Window(2).PadSame().Done()
	},
	"max pool, overlapping": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return graph.MaxPool(graph.Reshape(x, -1, 3, 2)).Window(2).Strides(1).Done()
	},
	"squared error": func(_ *strategy.ReplicaContext, x, l *graph.Node) *graph.Node {
		return loss.MeanSquaredError([]*graph.Node{graph.Tanh(x)}, []*graph.Node{x})
	},
	"absolute error": func(_ *strategy.ReplicaContext, x, l *graph.Node) *graph.Node {
		return loss.MeanAbsoluteError([]*graph.Node{graph.Tanh(x)}, []*graph.Node{x})
	},
	"binary": func(_ *strategy.ReplicaContext, x, l *graph.Node) *graph.Node {
		return loss.BinaryCrossentropyLogits([]*graph.Node{graph.PositiveIndicator(x)}, []*graph.Node{graph.Tanh(x)})
	},
	"cross entropy": func(_ *strategy.ReplicaContext, x, l *graph.Node) *graph.Node {
		return loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{l}, []*graph.Node{x})
	},
	"dense cross entropy": func(_ *strategy.ReplicaContext, x, l *graph.Node) *graph.Node {
		return loss.CategoricalCrossEntropyLogits([]*graph.Node{graph.OneHot(graph.Squeeze(l, 1), 6, x.DType())},
			[]*graph.Node{x})
	},
	"masked cross entropy": func(_ *strategy.ReplicaContext, x, l *graph.Node) *graph.Node {
		mask := graph.Squeeze(graph.GreaterThan(l, graph.ScalarZero(x.Graph(), l.DType())), 1)
		return loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{l, mask}, []*graph.Node{x})
	},
	"huber": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return loss.MakeHuberLoss(0.5)([]*graph.Node{graph.Tanh(x)}, []*graph.Node{x})
	},
	"distance": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return loss.EuclideanDistanceSquare([]*graph.Node{graph.Tanh(x)}, []*graph.Node{x})
	},
	"accuracy": func(_ *strategy.ReplicaContext, x, l *graph.Node) *graph.Node {
		return metric.SparseCategoricalAccuracyGraph(nil, []*graph.Node{l}, []*graph.Node{x})
	},
	"binary accuracy": func(_ *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node {
		return metric.BinaryLogitsAccuracyGraph(nil, []*graph.Node{graph.PositiveIndicator(x)}, []*graph.Node{graph.Tanh(x)})
	},
}

func asNumber(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.Float32) }

// GoMLX's ops, layers, losses and metrics on padded rows have the same results as on the actual
// rows.
func TestOpsOnPaddedRows(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	one := strategytest.New(t, 1, 1)
	rng := rand.New(rand.NewPCG(9, 10))
	batch := []*tensors.Tensor{strategytest.Normals(rng, 5, 6), strategytest.Classes(rng, 6, 5, 1)}
	args := poisoned(t, s, batch, []int{3, 2}, 3)
	step := func(names []string) strategy.StepFunc {
		return func(rc *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
			for _, name := range names {
				x := graph.Identity(in[0])
				y := rowOps[name](rc, x, in[1])
				all := graph.ReduceAllSum(graph.Square(y))
				out = append(out, y, graph.Gradient(graph.Add(all, graph.MulScalar(graph.ReduceAllSum(x), 0)), x)[0])
			}
			return out
		}
	}
	store := func() *model.Store {
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(42))
		return store
	}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(rowOps)), 16) { // number of ops per program
		got, err := s.Function(step(chunk), strategy.FunctionOptions{Store: store(), Padding: strategy.MaskPadding}).Run(ctx,
			args...)
		if err != nil { // find the op that fails
			for _, name := range chunk {
				f := s.Function(step([]string{name}), strategy.FunctionOptions{Store: store(), Padding: strategy.MaskPadding})
				_, err := f.Lowered(ctx, args...)
				assert.NoError(t, err, name)
			}
			t.FailNow()
		}
		plain := one.Function(step(chunk), strategy.FunctionOptions{Store: store()})
		for r, rows := range map[int][2]int{1: {3, 5}} { // the replica with padding
			want, err := plain.Run(ctx, take(batch, rows[0], rows[1])...)
			require.NoError(t, err)
			for i := range want {
				a, err := want[i].Local(ctx, 0)
				require.NoError(t, err)
				b, err := got[i].Local(ctx, r)
				require.NoError(t, err)
				what := chunk[i/2] + []string{"", ", its gradient"}[i%2]
				if a.Shape().String() != b.Shape().String() || !near(a, b) {
					t.Errorf("%s: replica %d has %s, want %s", what, r, b, a)
				}
			}
		}
	}
}

// near reports whether two tensors are equal up to 2e-4, and up to a relative error of 1e-5 for
// larger numbers, whose sums are rounded differently on each processor.
func near(a, b *tensors.Tensor) bool {
	if a.DType() != dtypes.Float32 {
		return a.InDelta(b, 2e-4)
	}
	x, y := tensors.MustCopyFlatData[float32](a), tensors.MustCopyFlatData[float32](b)
	for i := range x {
		if !(math.Abs(float64(x[i]-y[i])) <= max(2e-4, 1e-5*math.Abs(float64(x[i])))) {
			return false
		}
	}
	return true
}
