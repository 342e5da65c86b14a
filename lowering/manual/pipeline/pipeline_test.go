//go:build cgo

package pipeline_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/manual/pipeline"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// layer is one layer. Its square root has no finite gradient at 0, so the test fails if a round
// computes on zeros.
func layer(x, w, b *graph.Node) *graph.Node {
	h := graph.Tanh(graph.Add(graph.Dot(x, w).Product(), graph.ExpandLeftToRank(b, 2)))
	norm := graph.Sqrt(graph.ReduceAndKeep(graph.Square(x), graph.ReduceSum, -1))
	return graph.Add(x, graph.Div(h, norm))
}

// stage runs its layers in a loop.
func stage(x *graph.Node, w []*graph.Node) *graph.Node {
	return loop.Run(nil, w[0].Shape().Dimensions[0], loop.Arguments{Carried: []*graph.Node{x}, Sliced: w},
		func(l *loop.Layer) loop.Results {
			return loop.Results{Carried: []*graph.Node{layer(l.Carried[0], l.Sliced[0], l.Sliced[1])}}
		}, loop.Options{}).Carried[0]
}

func sequential(x *graph.Node, w []*graph.Node) *graph.Node {
	for i := range w[0].Shape().Dimensions[0] {
		at := func(w *graph.Node) *graph.Node { return graph.Squeeze(graph.SliceAxis(w, 0, graph.AxisElem(i)), 0) }
		x = layer(x, at(w[0]), at(w[1]))
	}
	return x
}

func TestPipelineMatchesSequentialStages(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	args := []any{strategytest.Normals(rng, 12, 4), strategytest.Normals(rng, 8, 4, 4), strategytest.Normals(rng, 8, 4)}
	run := func(t *testing.T, s *strategy.TPUStrategy, of func(x *graph.Node,
		w []*graph.Node) *graph.Node) (all [][]float32) {
		t.Helper()
		f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			y := of(in[0], in[1:])
			weights := graph.Cos(graph.IotaFull(y.Graph(), y.Shape()))
			return append([]*graph.Node{y}, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, weights)), in...)...)
		}, strategy.FunctionOptions{})
		out, err := f.Run(t.Context(), args...)
		require.NoError(t, err)
		for _, x := range out {
			all = append(all, tensors.MustCopyFlatData[float32](strategytest.OK(x.Local(t.Context(), 0))))
		}
		return all
	}
	want := run(t, strategytest.New(t, 1, 1), sequential)
	for _, c := range []struct {
		axes []sharding.Axis
		opts pipeline.Options
	}{
		{[]sharding.Axis{{Name: "stage", Size: 1}}, pipeline.Options{Microbatches: 3}},
		{[]sharding.Axis{{Name: "stage", Size: 4}}, pipeline.Options{Microbatches: 6, Keep: remat.Nothing()}},
		{[]sharding.Axis{{Name: "stage", Size: 2}, {Name: "model", Size: 2}}, pipeline.Options{Microbatches: 4,
			Keep: remat.Products()}},
		{[]sharding.Axis{{Name: "stage", Size: 4}}, pipeline.Options{Microbatches: 1}},
	} {
		t.Run(fmt.Sprintf("%v, %d microbatches, keep %s", c.axes, c.opts.Microbatches, c.opts.Keep), func(t *testing.T) {
			devices := 1
			for _, a := range c.axes {
				devices *= a.Size
			}
			s := strategytest.On(t, plugintest.System(t, devices), strategy.Options{LogicalAxes: c.axes})
			for i, got := range run(t, s, func(x *graph.Node, w []*graph.Node) *graph.Node {
				return pipeline.Run("stage", x, w,
					stage, c.opts)
			}) {
				require.InDeltaSlice(t, want[i], got, 1e-4, "result %d", i)
			}
		})
	}
}

func TestRunErrors(t *testing.T) {
	for want, of := range map[string]func(x, w *graph.Node){
		"5 microbatches of a batch of 12 rows": func(x, w *graph.Node) {
			pipeline.Run("stage", x, nil, stage,
				pipeline.Options{Microbatches: 5})
		},
		"-1 microbatches": func(x, w *graph.Node) {
			pipeline.Run("stage", x, nil, stage,
				pipeline.Options{Microbatches: -1})
		},
		"the batch is nil or a scalar": func(x, w *graph.Node) {
			pipeline.Run("stage", nil, nil, stage,
				pipeline.Options{})
		},
		"the stage is nil": func(x, w *graph.Node) {
			pipeline.Run("stage", x, nil, nil,
				pipeline.Options{})
		},
		"that the number of stages divides": func(x, w *graph.Node) {
			pipeline.Run("stage", x, []*graph.Node{w},
				stage, pipeline.Options{})
		},
		`axis "model": the replica does not have it`: func(x, w *graph.Node) {
			pipeline.Run("model", x, nil, stage,
				pipeline.Options{})
		},
		"return the shape and the dtype of the argument": func(x, w *graph.Node) {
			pipeline.Run("stage", x, nil, func(x *graph.Node, _ []*graph.Node) *graph.Node { return graph.ReduceAllSum(x) },
				pipeline.Options{})
		},
	} {
		g := graph.NewGraph(spmd.NewTrace(spmd.Options{LogicalAxes: []sharding.Axis{{Name: "stage", Size: 4}}}), "step")
		func() {
			defer func() {
				var fault *errkind.Fault
				err, _ := recover().(error)
				require.ErrorAs(t, err, &fault, want)
				assert.ErrorContains(t, err, want)
			}()
			of(graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 12, 4)), graph.Parameter(g, "w", shapes.Make(dtypes.Float32,
				6, 4, 4)))
		}()
	}
}
