//go:build cgo

package manual_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/lowering/manual/moe"
	"github.com/tpustrategy/tpustrategy/lowering/manual/pipeline"
	"github.com/tpustrategy/tpustrategy/lowering/manual/ring"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

const width, hidden, experts = 16, 32, 4

func weights(scope *model.Scope, name string, x *graph.Node, dims ...int) *graph.Node {
	return scope.VariableWithShape(name, shapes.Make(dtypes.Float32, dims...)).NodeValue(x.Graph())
}

// parallel is a dense layer of two products with manual tensor parallelism: its hidden values are
// split over the axis "model". It reads its bias from outside.
func parallel(scope *model.Scope, x *graph.Node) *graph.Node {
	up, down := weights(scope, "up", x, width, hidden), weights(scope, "down", x, hidden, width)
	bias := weights(scope, "bias", x, width)
	return manual.Region([]string{"model"}, []manual.Arg{manual.In(x), manual.In(up, nil, "model"),
		manual.In(down, "model"), manual.In(bias)},
		[]sharding.Spec{sharding.P()}, func(in []*graph.Node) []*graph.Node {
			h := graph.Tanh(graph.Dot(in[0], in[1]).Product())
			y := manual.AllReduce(graph.Dot(h, in[2]).Product(), manual.Sum, "model")
			return []*graph.Node{graph.Add(in[0], graph.Add(y, graph.ExpandLeftToRank(in[3], 2)))}
		})[0]
}

// sparse is a mixture-of-experts layer.
func sparse(scope *model.Scope, x *graph.Node) *graph.Node {
	w := []*graph.Node{weights(scope, "experts_up", x, experts, width, hidden), weights(scope, "experts_down", x, experts,
		hidden, width)}
	out := moe.Layer(x, weights(scope, "gate", x, width, experts), w, func(x *graph.Node, w []*graph.Node) *graph.Node {
		return graph.Einsum("esh,ehd->esd", graph.Tanh(graph.Einsum("esd,edh->esh", x, w[0])), w[1])
	}, moe.Options{Axis: "expert", CapacityFactor: experts})
	return graph.Add(x, out.Output)
}

// mixed is a model with manual regions in a loop over layers, in a recomputed block, and next to
// annotations.
func mixed(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	x := graph.Tanh(layers.Dense(rc.Scope("in"), in[0], true, width))
	x = logical.SplitOver(x, "expert", "model")
	x = loop.Layers(rc.Scope("layers"), 2, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
		return sparse(scope.In("moe"), parallel(scope.In("dense"), x))
	}, loop.Options{Keep: remat.Products()})
	x = remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node { return parallel(rc.Scope("block"), x) })
	x = sparse(rc.Scope("last"), x)
	y := layers.Dense(rc.Scope("out"), logical.Replicate(x), true, 1)
	return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
}

func mixedOptions(model, expert int) strategy.Options {
	return strategy.Options{
		LogicalAxes: []sharding.Axis{{Name: "model", Size: model}, {Name: "expert", Size: expert}},
		Variables: logical.Rules{
			logical.Match(`layers/.*experts_`, logical.SplitOverAxes("", "expert", "", "")),
			logical.Match(`last/.*experts_`, logical.SplitOverAxes("expert", "", "")),
			logical.Match(`block/.*up`, logical.SplitOverAxes("", "model")),
		},
	}
}

func mixedStep(s *strategy.TPUStrategy) *train.Step {
	return strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(), mixed,
		train.Options{}))
}

func TestManualRegionsMatchOneDevice(t *testing.T) {
	const steps = 4
	want := strategytest.Losses(t, mixedStep(strategytest.On(t, plugintest.System(t, 1), mixedOptions(1, 1))), 0, steps)
	require.Less(t, want[steps-1], want[0])
	for _, mesh := range [][3]int{{2, 2, 2}, {1, 1, 4}} {
		t.Run(fmt.Sprint(mesh), func(t *testing.T) {
			opts := mixedOptions(mesh[1], mesh[2])
			if mesh[0] > 1 {
				opts.Variables = append(opts.Variables, strategytest.Share(logical.ShardParameters, 1)...)
			}
			s := strategytest.On(t, plugintest.System(t, mesh[0]*mesh[1]*mesh[2]), opts)
			assert.InDeltaSlice(t, want, strategytest.Losses(t, mixedStep(s), 0, steps), 1e-4)
			if mesh[0] == 1 {
				last := strategytest.LoopLosses(t, mixedStep(s), steps, 1)
				assert.InDelta(t, want[steps-1], last[0], 1e-4)
			}
		})
	}
}

func TestAOTManualRegionsCompileForTPUs(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	step := mixedStep(strategytest.Ahead(t, "v5e:4x4", mixedOptions(2, 4)))
	x, y := strategytest.BatchShapes(32)
	c, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	r, err := report.Of(c)
	require.NoError(t, err)
	kinds := map[string]bool{}
	for _, d := range r.CollectiveDTypes {
		kinds[d.Kind] = true
	}
	t.Log(r.CollectiveDTypes)
	assert.True(t, kinds["all-to-all"], "%v", kinds)

	// A pipeline of stages with attention round a ring in each.
	s := strategytest.Ahead(t, "v5e:4x4", strategy.Options{LogicalAxes: []sharding.Axis{{Name: "stage", Size: 2},
		{Name: "sequence", Size: 4}}})
	piped := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			w := weights(rc.Scope("stages"), "w", in[0], 2, hidden, hidden)
			x := graph.InsertAxes(in[0], 2, 2) // [batch, length, heads, dim]
			x = graph.BroadcastToDims(x, x.Shape().Dimensions[0], 8, 2, hidden)
			x = ring.Attention("sequence", x, x, x, ring.Options{Causal: true})
			y := pipeline.Run("stage", x, []*graph.Node{w}, func(x *graph.Node, w []*graph.Node) *graph.Node {
				return graph.Tanh(graph.Einsum("blhd,de->blhe", x, graph.Squeeze(w[0], 0)))
			}, pipeline.Options{Microbatches: 4})
			return graph.ReduceAllMean(graph.Square(graph.Sub(graph.ReduceSum(y, 1, 2, 3), graph.Squeeze(in[1], 1))))
		}, train.Options{}))
	c, err = piped.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	assert.Contains(t, string(c.Module.Text), "stablehlo.collective_permute")
}

// A region draws random numbers from the generator of the store, whose new state is used outside of
// the region.
func TestRandomNumbersOfARegion(t *testing.T) {
	strategytest.OnMeshes(t, [][2]int{{1, 2}, {4, 2}}, randomNumbersOfARegion)
}

func randomNumbersOfARegion(t *testing.T, s *strategy.TPUStrategy) {
	losses := map[bool][]float64{}
	for _, region := range []bool{false, true} {
		losses[region] = strategytest.Losses(t, strategytest.OK(train.New(s, strategytest.SeededStore(),
			optimizer.StochasticGradientDescent().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				h := layers.Dense(rc.Scope("in"), in[0], true, width)
				dropped := func(h *graph.Node) *graph.Node {
					return layers.Dropout(rc.Scope("drop"), h, graph.Const(h.Graph(), float32(0.5)))
				}
				if region {
					h = run(nil, manual.In(h), sharding.P(), dropped)
				} else {
					h = dropped(h)
				}
				h = layers.Dropout(rc.Scope("drop"), h, graph.Const(h.Graph(), float32(0.5)))
				return graph.ReduceAllMean(graph.Square(graph.Sub(graph.ReduceAndKeep(h, graph.ReduceSum, -1), in[1])))
			}, train.Options{})), 0, 3)
	}
	assert.InDeltaSlice(t, losses[false], losses[true], 1e-5)
}

// The last batch is padded. A region can receive it replicated but not split.
func TestPaddedRowsOfARegion(t *testing.T) {
	s := strategytest.New(t, 2, 2)
	x, err := s.PerReplica(t.Context(), []any{[]float32{5, 6, 7, 8}, []float32{7, 1}}, logical.Annotation{})
	require.NoError(t, err)
	mean := func(parts ...any) error {
		f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{run(nil, manual.In(in[0], parts...), sharding.P(), func(x *graph.Node) *graph.Node {
				return manual.AllReduce(graph.ReduceAllMean(x), manual.Mean)
			})}
		}, strategy.FunctionOptions{Padding: strategy.MaskPadding})
		out, err := f.Run(t.Context(), x)
		if err == nil {
			assert.Equal(t, []any{float32(6.5), float32(4)}, strategytest.Values(t, out[0], 2))
		}
		return err
	}
	require.NoError(t, mean())
	require.ErrorContains(t, mean("logical"), "ragged: ")
}
