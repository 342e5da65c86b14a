package train_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// optimizerFunc is an optimizer that consists of one function.
type optimizerFunc func(scope *model.Scope, gradients []*graph.Node)

func (f optimizerFunc) UpdateGraph(*model.Scope, *graph.Graph, *graph.Node) {}
func (f optimizerFunc) Clear(*model.Scope) error                            { return nil }
func (f optimizerFunc) UpdateGraphWithGradients(scope *model.Scope, gradients []*graph.Node, _ dtypes.DType) {
	f(scope, gradients)
}

// gradientVariables returns the variables of the scope for which there are gradients.
func gradientVariables(scope *model.Scope, g *graph.Graph) (all []*model.Variable) {
	for v := range scope.IterVariables() {
		if v.Trainable && v.InUseByGraph(g) {
			all = append(all, v)
		}
	}
	return all
}

// stateLike returns a state variable of v, of a shape that may differ from the shape of v.
func stateLike(scope *model.Scope, v *model.Variable, name string, dims ...int) *model.Variable {
	return scope.Store().Scope("/of"+v.Scope()).WithInitializer(initializer.Zero).
		VariableWithShape(v.Name()+name, shapes.Make(v.DType(), dims...)).SetTrainable(false)
}

// moved halves the old value of a state variable, adds x, and returns the new value.
func moved(of *model.Variable, x *graph.Node) *graph.Node {
	now := graph.Add(graph.MulScalar(of.NodeValue(x), 0.5), x)
	of.SetNodeValue(now)
	return now
}

func matrix(x *graph.Node) bool { return x.Rank() == 2 }

// positions returns numbers that increase with the index along the first axis of x.
func positions(x *graph.Node) *graph.Node {
	return graph.AddScalar(graph.Iota(x.Graph(), shapes.Make(x.DType(), x.Shape().Dimensions...), 0), 1)
}

// customOptimizers returns optimizers by the kind of dependence between the elements of their
// updates. With onShards it returns those in which each element depends only on the same element
// and on scalars.
func customOptimizers(onShards bool) map[string]func() optimizer.Interface {
	each := func(change func(scope *model.Scope, v *model.Variable,
		gradient *graph.Node) *graph.Node) func() optimizer.Interface {
		return func() optimizer.Interface { return custom{change} }
	}
	if onShards {
		return map[string]func() optimizer.Interface{
			"adamw": func() optimizer.Interface { return optimizer.Adam().WeightDecay(0.1).LearningRate(0.02).Done() },
			"momentum": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
				return graph.MulScalar(moved(stateLike(scope, v, "_m", v.Shape().Dimensions...), x), 0.05)
			}),
			"lion": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
				m := stateLike(scope, v, "_m", v.Shape().Dimensions...)
				sign := graph.Sign(graph.Add(graph.MulScalar(m.NodeValue(x), 0.9), graph.MulScalar(x, 0.1)))
				moved(m, x)
				return graph.MulScalar(graph.Add(sign, graph.MulScalar(v.NodeValue(x), 0.1)), 0.003)
			}),
			"decay by rank, clipped by value, warmed up": func() optimizer.Interface {
				return optimizerFunc(func(scope *model.Scope, gradients []*graph.Node) {
					g := gradients[0].Graph()
					step := optimizer.IncrementGlobalStep(g, dtypes.Float32)
					rate := graph.MulScalar(graph.MinScalar(graph.DivScalar(step, 3), 1), 0.1)
					for i, v := range gradientVariables(scope, g) {
						x := graph.Where(graph.GreaterThan(graph.Abs(gradients[i]), graph.ScalarOne(g, v.DType())),
							graph.Sign(gradients[i]), graph.ClipScalar(gradients[i], -0.5, 0.5))
						if matrix(x) {
							x = graph.Add(x, graph.MulScalar(v.NodeValue(g), 0.01))
						}
						v.SetNodeValue(graph.Sub(v.NodeValue(g), graph.Mul(x, rate)))
					}
				})
			},
			"every second variable": func() optimizer.Interface {
				return optimizerFunc(func(scope *model.Scope, gradients []*graph.Node) {
					for i, v := range gradientVariables(scope, gradients[0].Graph()) {
						if i%2 == 0 {
							v.SetNodeValue(graph.Sub(v.NodeValue(gradients[i]), graph.MulScalar(gradients[i], 0.1)))
						}
					}
				})
			},
		}
	}
	return map[string]func() optimizer.Interface{
		"rate by fan-in": each(func(_ *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			rate := 0.02
			if v.Shape().Rank() == 2 {
				rate *= 16 / float64(v.Shape().Dim(0))
			}
			return graph.MulScalar(x, rate)
		}),
		"rate by the size of the gradient": each(func(_ *model.Scope, _ *model.Variable, x *graph.Node) *graph.Node {
			return graph.MulScalar(x, 1/float64(x.Shape().Size()))
		}),
		"another rule for large matrices": each(func(_ *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			if v.Shape().Rank() == 2 && v.Shape().Dim(0) > 7 {
				return graph.MulScalar(graph.Sign(x), 0.01)
			}
			return graph.MulScalar(x, 0.1)
		}),
		"rate by position": each(func(_ *model.Scope, _ *model.Variable, x *graph.Node) *graph.Node {
			return graph.MulScalar(graph.Div(x, positions(x)), 0.2)
		}),
		"a mask of constants": each(func(_ *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			mask := tensors.FromShape(v.Shape())
			mask.MustMutableFlatData(func(flat any) {
				for i := range flat.([]float32) {
					flat.([]float32)[i] = float32(i % 3)
				}
			})
			return graph.MulScalar(graph.Mul(x, graph.ConstTensor(x.Graph(), mask)), 0.1)
		}),
		"clipped at the median": each(func(_ *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			flat := graph.Sort(graph.Reshape(graph.Abs(x), x.Shape().Size()), 0, true)
			median := graph.Reshape(graph.Slice(flat, graph.AxisElem(x.Shape().Size()/2)))
			return graph.MulScalar(graph.Where(graph.GreaterThan(graph.Abs(x), median), graph.ZerosLike(x), x), 0.2)
		}),
		"the largest of each row": each(func(_ *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			at := graph.ArgMax(graph.Abs(x), -1, dtypes.Int32)
			index := graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, x.Shape().Dimensions...), -1)
			return graph.MulScalar(graph.Where(graph.Equal(index, graph.BroadcastToShape(graph.InsertAxes(at, -1),
				index.Shape())), x, graph.ZerosLike(x)), 0.2)
		}),
		"adafactor": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			squares := graph.AddScalar(graph.Square(x), 1e-6)
			if !matrix(x) {
				return graph.MulScalar(graph.Div(x, graph.Sqrt(moved(stateLike(scope, v, "_v", x.Shape().Dimensions...), squares))),
					0.02)
			}
			rows := moved(stateLike(scope, v, "_rows", x.Shape().Dim(0)), graph.ReduceMean(squares, 1))
			columns := moved(stateLike(scope, v, "_columns", x.Shape().Dim(1)), graph.ReduceMean(squares, 0))
			product := graph.Mul(graph.InsertAxes(rows, 1), graph.InsertAxes(columns, 0))
			return graph.MulScalar(graph.Div(x, graph.Sqrt(graph.Div(product, graph.ReduceAllMean(rows)))), 0.02)
		}),
		"lamb": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			m := moved(stateLike(scope, v, "_m", x.Shape().Dimensions...), x)
			ratio := graph.Div(graph.AddScalar(graph.L2Norm(v.NodeValue(x)), 0.1), graph.AddScalar(graph.L2Norm(m), 0.1))
			return graph.MulScalar(graph.Mul(m, ratio), 0.05)
		}),
		"rows of norm one": each(func(_ *model.Scope, _ *model.Variable, x *graph.Node) *graph.Node {
			return graph.MulScalar(graph.Div(x, graph.AddScalar(graph.L2Norm(x, -1), 1e-3)), 0.05)
		}),
		"muon": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			x = moved(stateLike(scope, v, "_m", x.Shape().Dimensions...), x)
			if !matrix(x) {
				return graph.MulScalar(x, 0.05)
			}
			x = graph.Div(x, graph.AddScalar(graph.L2Norm(x), 1e-3))
			for range 2 {
				x = graph.Sub(graph.MulScalar(x, 1.5), graph.MulScalar(graph.MatMul(graph.MatMul(x, graph.Transpose(x, 0, 1)), x),
					0.5))
			}
			return graph.MulScalar(x, 0.05)
		}),
		"centered": each(func(_ *model.Scope, _ *model.Variable, x *graph.Node) *graph.Node {
			return graph.MulScalar(graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMean, 0)), 0.1)
		}),
		"flat": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			m := moved(stateLike(scope, v, "_flat", x.Shape().Size()), graph.Reshape(x, x.Shape().Size()))
			return graph.MulScalar(graph.Reshape(m, x.Shape().Dimensions...), 0.05)
		}),
		"flat, by position": each(func(_ *model.Scope, _ *model.Variable, x *graph.Node) *graph.Node {
			flat := graph.Reshape(x, x.Shape().Size())
			return graph.MulScalar(graph.Reshape(graph.Div(flat, graph.Sqrt(positions(flat))), x.Shape().Dimensions...), 0.2)
		}),
		"turned around": each(func(_ *model.Scope, _ *model.Variable, x *graph.Node) *graph.Node {
			return graph.MulScalar(graph.Add(x, graph.Reverse(x, 0)), 0.05)
		}),
		"smoothed along the first axis": each(func(_ *model.Scope, _ *model.Variable, x *graph.Node) *graph.Node {
			return graph.MulScalar(graph.CumSum(x, 0), 0.02)
		}),
		"the global norm": func() optimizer.Interface {
			return optimizerFunc(func(scope *model.Scope, gradients []*graph.Node) {
				sum := graph.ScalarZero(gradients[0].Graph(), dtypes.Float32)
				for _, x := range gradients {
					sum = graph.Add(sum, graph.ReduceAllSum(graph.Square(x)))
				}
				norm := optimizer.IncrementCounter(scope.At("norms"), sum.Graph(), "count", dtypes.Float32)
				norm = graph.Add(norm, graph.Sqrt(sum))
				for i, v := range gradientVariables(scope, norm.Graph()) {
					v.SetNodeValue(graph.Sub(v.NodeValue(norm), graph.MulScalar(graph.Div(gradients[i], norm), 0.2)))
				}
			})
		},
		"a mean of norms in the state": func() optimizer.Interface {
			return optimizerFunc(func(scope *model.Scope, gradients []*graph.Node) {
				of := scope.Store().Scope("/norms").WithInitializer(initializer.Zero).VariableWithShape("mean",
					shapes.Make(dtypes.Float32)).SetTrainable(false)
				now := moved(of, graph.ReduceAllMax(graph.Abs(gradients[0])))
				for i, v := range gradientVariables(scope, now.Graph()) {
					v.SetNodeValue(graph.Sub(v.NodeValue(now), graph.MulScalar(graph.Div(gradients[i], graph.AddScalar(now, 1)), 0.2)))
				}
			})
		},
		"one rate by the largest variable": func() optimizer.Interface {
			return optimizerFunc(func(scope *model.Scope, gradients []*graph.Node) {
				largest := 0
				for _, v := range gradientVariables(scope, gradients[0].Graph()) {
					largest = max(largest, v.Shape().Size())
				}
				for i, v := range gradientVariables(scope, gradients[0].Graph()) {
					v.SetNodeValue(graph.Sub(v.NodeValue(gradients[i]), graph.MulScalar(gradients[i], 10/float64(largest))))
				}
			})
		},
		"the order of the other gradients": func() optimizer.Interface {
			return optimizerFunc(func(scope *model.Scope, gradients []*graph.Node) {
				for i, v := range gradientVariables(scope, gradients[0].Graph()) {
					other := graph.ReduceAllMax(gradients[(i+1)%len(gradients)])
					v.SetNodeValue(graph.Sub(v.NodeValue(other), graph.Mul(gradients[i], graph.MulScalar(graph.Abs(other), 0.1))))
				}
			})
		},
		"first values by the shape": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			first := 1 / float64(v.Shape().Dim(0))
			of := scope.Store().Scope("/of"+v.Scope()).WithInitializer(func(g *graph.Graph, shape shapes.Shape) *graph.Node {
				return graph.AddScalar(graph.Zeros(g, shape), first)
			}).VariableWithShape(v.Name()+"_v", v.Shape()).SetTrainable(false)
			return graph.MulScalar(graph.Div(x, graph.Sqrt(moved(of, graph.Square(x)))), 0.02)
		}),
		"first values that differ": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			first := tensors.FromShape(v.Shape())
			first.MustMutableFlatData(func(flat any) { flat.([]float32)[0] = 7 })
			of := scope.Store().Scope("/of"+v.Scope()).VariableWithValue(v.Name()+"_v", first).SetTrainable(false)
			return graph.MulScalar(moved(of, x), 0.01)
		}),
		"state that belongs to no variable": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			name := strings.ReplaceAll(v.Path(), "/", "_")
			last := scope.Store().Scope("/mine").WithInitializer(initializer.Zero).VariableWithShape(name,
				x.Shape()).SetTrainable(false)
			return graph.MulScalar(moved(last, x), 0.05)
		}),
		"state of integers": each(func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
			count := scope.Store().Scope("/of"+v.Scope()).WithInitializer(initializer.Zero).
				VariableWithShape(v.Name()+"_count", shapes.Make(dtypes.Int32, v.Shape().Dimensions...)).SetTrainable(false)
			count.SetNodeValue(graph.Add(count.NodeValue(x), graph.ConvertDType(graph.IsPositive(x), dtypes.Int32)))
			return graph.MulScalar(graph.Div(x, graph.AddScalar(graph.ConvertDType(count.NodeValue(x), x.DType()), 1)), 0.1)
		}),
		"state that the optimizer keeps in a map": func() optimizer.Interface {
			seen := map[string]*model.Variable{}
			return custom{func(scope *model.Scope, v *model.Variable, x *graph.Node) *graph.Node {
				if seen[v.Path()] == nil {
					seen[v.Path()] = stateLike(scope, v, "_m", v.Shape().Dimensions...)
				}
				return graph.MulScalar(moved(seen[v.Path()], x), 0.05)
			}}
		},
	}
}

// smallRun trains odd for three steps and returns the losses and the variables, and the step.
func smallRun(t *testing.T, opts strategy.Options, opt optimizer.Interface, o train.Options) ([]float64,
	map[string]*tensors.Tensor, *train.Step) {
	s := strategytest.On(t, plugintest.System(t, 8), opts)
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(s, store, opt, odd(s.NumLogicalDevices()), o))
	return strategytest.Losses(t, step, 0, 3), values(t, s, store), step
}

// TestEveryOptimizerTrainsAsOnOneDevice trains with optimizers of every kind, whose state is sharded,
// and requires the losses and variables of one device. Optimizers that are not elementwise run on
// gathered tensors, and the elementwise ones do not gather more than Adam.
func TestEveryOptimizerTrainsAsOnOneDevice(t *testing.T) {
	all := os.Getenv("TPUSTRATEGY_ALL_OPTIMIZERS") != ""
	meshes := [][2]int{{8, 1}, {4, 2}, {2, 4}}
	n := 0
	for _, onShards := range []bool{true, false} {
		optimizers := customOptimizers(onShards)
		for _, name := range slices.Sorted(maps.Keys(optimizers)) {
			opt := optimizers[name]
			t.Run(name, func(t *testing.T) {
				wantLosses, want, _ := smallRun(t, strategy.Options{Replicas: 1, LogicalDevices: 1}, opt(), train.Options{})
				for i, state := range stages[1:] {
					for m, mesh := range meshes {
						if !all && (i+m+n)%len(meshes) != 0 {
							continue
						}
						losses, got, step := smallRun(t, sharded(mesh[0], mesh[1], state), opt(), train.Options{})
						about := fmt.Sprintf("%s on %dx%d", state, mesh[0], mesh[1])
						assert.InDeltaSlice(t, wantLosses, losses, 1e-5, about)
						requireAlike(t, want, got, 1e-4)
						if onShards && state == logical.ShardParameters { // variables are gathered for the loss only
							x, y := strategytest.Batch(0)
							lowered, err := step.Lowered(t.Context(), x, y)
							require.NoError(t, err)
							assert.Equal(t, 7, strings.Count(string(lowered.Text), `"stablehlo.all_gather"`), about)
						}
					}
				}
			})
			n++
		}
	}
}

// TestGatheredUpdatesWorkInStepsOfAllKinds trains with an optimizer whose rate depends on the
// variable's shape, in steps with microbatches, loss scaling, clipping and averages.
func TestGatheredUpdatesWorkInStepsOfAllKinds(t *testing.T) {
	opt := customOptimizers(false)["adafactor"]
	for name, o := range map[string]train.Options{
		"microbatches":  {Accumulate: 2},
		"a loss scale":  {Precision: precision.Policy{LossScale: precision.FixedLossScale(1024)}},
		"clipping":      {ClipNorm: 0.1, NonFinite: train.Skip},
		"averages":      {Average: 0.9, AverageWarmUp: true},
		"frozen":        {Freeze: []string{"even"}},
		"update's norm": {UpdateNorm: true},
	} {
		t.Run(name, func(t *testing.T) {
			wantLosses, want, _ := smallRun(t, strategy.Options{Replicas: 1, LogicalDevices: 1}, opt(), o)
			for i, state := range stages[1:] {
				losses, got, _ := smallRun(t, sharded(4>>(i%2), 2<<(i%2), state), opt(), o)
				assert.InDeltaSlice(t, wantLosses, losses, 1e-5, state)
				requireAlike(t, want, got, 1e-4)
			}
		})
	}
}
