package gomlx_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
)

// randomOps compute a value from one or two others, or return nil if these do not fit. Sums keep
// their values small, so that the order of summation matters little.
var randomOps = map[string]func(r *rand.Rand, x, y *graph.Node) *graph.Node{
	"add": func(_ *rand.Rand, x, y *graph.Node) *graph.Node {
		if !x.Shape().Equal(y.Shape()) {
			return graph.AddScalar(x, 0.5)
		}
		return graph.Sub(x, y)
	},
	"tanh":      func(_ *rand.Rand, x, _ *graph.Node) *graph.Node { return graph.Tanh(x) },
	"transpose": func(_ *rand.Rand, x, _ *graph.Node) *graph.Node { return swapped(x) },
	"merge":     func(_ *rand.Rand, x, _ *graph.Node) *graph.Node { return graph.Reshape(x, -1) },
	"split": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		for _, d := range []int{4, 3, 2, 7} {
			if x.Shape().Size()%d == 0 && x.Shape().Size() > 0 {
				return graph.Reshape(x, d, -1)
			}
		}
		return nil
	},
	"reverse": func(r *rand.Rand, x, _ *graph.Node) *graph.Node { return graph.Reverse(x, r.IntN(x.Rank())) },
	"join": func(r *rand.Rand, x, y *graph.Node) *graph.Node {
		if x.Rank() != y.Rank() || !x.Shape().Equal(y.Shape()) {
			return graph.Concatenate([]*graph.Node{x, x}, r.IntN(x.Rank()))
		}
		return graph.Concatenate([]*graph.Node{x, y, x}, r.IntN(x.Rank()))
	},
	"slice": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		axis := r.IntN(x.Rank())
		if d := x.Shape().Dim(axis); d > 2 {
			return graph.SliceAxis(x, axis, graph.AxisRange(1, d-r.IntN(2)).Stride(1+r.IntN(2)))
		}
		return nil
	},
	"pad": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		axes := make([]compute.PadAxis, x.Rank())
		axes[r.IntN(x.Rank())] = compute.PadAxis{Start: r.IntN(3) - 1, End: r.IntN(3), Interior: r.IntN(2)}
		return graph.Pad(x, graph.Scalar(x.Graph(), x.DType(), 0.25), axes...)
	},
	"sum": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		return graph.ReduceAndKeep(x, graph.ReduceMean, r.IntN(x.Rank()))
	},
	"max": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		return graph.ReduceAndKeep(x, graph.ReduceMax, r.IntN(x.Rank()))
	},
	"cumsum": func(r *rand.Rand, x, _ *graph.Node) *graph.Node { return graph.Tanh(graph.CumSum(x, r.IntN(x.Rank()))) },
	"sort": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		return graph.Sort(x, r.IntN(x.Rank()), r.IntN(2) == 0)
	},
	"topk": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		values, indices := graph.TopK(x, 1, r.IntN(x.Rank()))
		return graph.Add(values, graph.MulScalar(graph.ConvertDType(indices, x.DType()), 0.01))
	},
	"argmax": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		return graph.InsertAxes(graph.MulScalar(graph.ConvertDType(graph.ArgMax(x, r.IntN(x.Rank())), x.DType()), 0.1), 0)
	},
	"gather": func(r *rand.Rand, x, y *graph.Node) *graph.Node {
		return graph.Gather(x, isRowGather(y, x.Shape().Dim(0)))
	},
	"scatter": func(r *rand.Rand, x, y *graph.Node) *graph.Node {
		at := isRowGather(y, x.Shape().Dim(0))
		return graph.ScatterSum(x, at, graph.MulScalar(graph.Gather(x, at), 0.5), false, false)
	},
	"product": func(_ *rand.Rand, x, _ *graph.Node) *graph.Node {
		if x.Rank() != 2 {
			return nil
		}
		return graph.Tanh(graph.MatMul(x, graph.Transpose(x, 0, 1)))
	},
	"batched": func(_ *rand.Rand, x, _ *graph.Node) *graph.Node {
		if x.Rank() != 3 {
			return nil
		}
		return graph.Tanh(graph.Einsum("bij,bkj->bik", x, x))
	},
	"window": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		if x.Rank() != 3 {
			return nil
		}
		return graph.MaxPool(x).Window(2).Strides(1 + r.IntN(2)).PadSame().Done()
	},
	"convolve": func(r *rand.Rand, x, _ *graph.Node) *graph.Node {
		if x.Rank() != 3 {
			return nil
		}
		c := x.Shape().Dim(2)
		kernel := graph.Sin(graph.IotaFull(x.Graph(), shapes.Make(x.DType(), 3, c, 4)))
		return graph.Tanh(graph.Convolve(x, kernel).PadSame().Strides(1 + r.IntN(2)).Done())
	},
	"where": func(_ *rand.Rand, x, y *graph.Node) *graph.Node {
		return graph.Where(graph.GreaterThan(x, graph.ScalarZero(x.Graph(), x.DType())), x, graph.MulScalar(x, -0.1))
	},
	"loop": func(_ *rand.Rand, x, _ *graph.Node) *graph.Node {
		g := x.Graph()
		cond := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			i := graph.Parameter(g, "i", shapes.Make(dtypes.Int32))
			graph.Parameter(g, "v", x.Shape())
			return []*graph.Node{graph.LessThan(i, graph.Const(g, int32(3)))}
		})
		body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			i := graph.Parameter(g, "i", shapes.Make(dtypes.Int32))
			v := graph.Parameter(g, "v", x.Shape())
			return []*graph.Node{graph.Add(i, graph.Const(g, int32(1))),
				graph.Sin(graph.Add(v, graph.ReduceAndKeep(v, graph.ReduceMax, 0)))}
		})
		return graph.While(cond, body, graph.Const(g, int32(0)), x)[1]
	},
	"update": func(r *rand.Rand, x, y *graph.Node) *graph.Node {
		g, starts := x.Graph(), make([]*graph.Node, x.Rank())
		for i := range starts {
			starts[i] = graph.Const(g, int32(0))
		}
		starts[0] = graph.Reshape(graph.Slice(isRowGather(y, x.Shape().Dim(0)), graph.AxisElem(0)))
		row := graph.Neg(graph.SliceAxis(x, 0, graph.AxisElem(0)))
		return graph.DynamicUpdateSlice(x, row, starts)
	},
}

func swapped(x *graph.Node) *graph.Node {
	if x.Rank() < 2 {
		return x
	}
	return graph.Transpose(x, 0, x.Rank()-1)
}

// isRowGather makes indices of rows of the values of y, 3 at most.
func isRowGather(y *graph.Node, rows int) *graph.Node {
	flat := graph.Reshape(y, -1)
	n := min(3, flat.Shape().Dim(0))
	first := graph.Slice(flat, graph.AxisRange(0, n))
	at := graph.ConvertDType(graph.Floor(graph.MulScalar(graph.Abs(graph.Sin(first)), float64(rows)-0.01)), dtypes.Int32)
	return graph.InsertAxes(at, -1)
}

// randomGraph makes a few values of two parameters.
func randomGraph(seed uint64, names []string) func(x, w *graph.Node) []*graph.Node {
	return func(x, w *graph.Node) []*graph.Node {
		r := rand.New(rand.NewPCG(seed, 1))
		values := []*graph.Node{x, w}
		for len(values) < 8 {
			name := names[r.IntN(len(names))]
			a, b := values[r.IntN(len(values))], values[r.IntN(len(values))]
			if len(values) > 2 && r.IntN(2) == 0 {
				a = values[len(values)-1]
			}
			if v := randomOps[name](r, a, b); v != nil && v.Shape().Size() > 0 && v.Shape().Size() < 1e5 && v.Rank() > 0 &&
				v.Rank() < 5 {
				values = append(values, v)
			}
		}
		return values[2:]
	}
}

// TestRandomPrograms compares programs on 8 devices with the same on one. TPUSTRATEGY_RANDOM_PROGRAMS
// is how many, beside the few that always run.
func TestRandomPrograms(t *testing.T) {
	count, first := 6, uint64(1)
	if text := os.Getenv("TPUSTRATEGY_RANDOM_PROGRAMS"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err)
		first = 1000
	}
	var names []string
	for name := range randomOps {
		names = append(names, name)
	}
	slices.Sort(names)
	rules := gomlx.Options{Rules: logical.Rules{logical.Match("^/w$", logical.SplitOverAxes("logical", "replica")),
		logical.Match("^/w$", logical.SplitOverAxes("replica", "logical", ""))}}
	one, grids := newBackend(t, shape{"1x1", 1, 1}), []*gomlx.Backend{newBackend(t, grid, rules),
		newBackend(t, shape{"8x1", 8, 1}), newBackend(t, shape{"2x4", 2, 4}, rules)}
	for seed := first; seed < first+uint64(count); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			dims := [][]int{{8, 6}, {16, 4, 3}, {7, 4}, {8, 8}, {24}, {8, 3, 4}, {1, 8}}
			inputs := make([]*tensors.Tensor, 2)
			for i := range inputs {
				d := dims[r.IntN(len(dims))]
				flat := make([]float32, product(d))
				for k := range flat {
					flat[k] = float32(r.IntN(2000)-1000) / 500
				}
				inputs[i] = tensors.FromFlatDataAndDimensions(flat, d...)
			}
			run := func(b *gomlx.Backend) (values [][]float32) {
				flats := []*tensors.Tensor{must1(inputs[0].LocalClone()), must1(inputs[1].LocalClone())}
				g := graph.NewGraph(b, "random")
				x, w := graph.Parameter(g, "x", inputs[0].Shape()), graph.Parameter(g, "/w", inputs[1].Shape())
				require.NoError(t, g.Compile(randomGraph(seed, names)(x, w)...))
				defer g.Finalize()
				plugintest.Within(t, 2*time.Minute, func() {
					for _, out := range g.Run(flats[0], flats[1]) {
						values = append(values, tensors.MustCopyFlatData[float32](out))
					}
				})
				return values
			}
			want := run(one)
			for _, b := range grids {
				got := run(b)
				for i := range want {
					require.Len(t, got[i], len(want[i]))
					for k := range want[i] {
						if d := math.Abs(float64(got[i][k] - want[i][k])); !(d < 1e-3*(1+math.Abs(float64(want[i][k])))) {
							assert.Fail(t, "other numbers", "%s: value %d at %d is %g, want %g", b.Mesh(), i, k, got[i][k], want[i][k])
							return
						}
					}
				}
			}
		})
	}
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func must1[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
