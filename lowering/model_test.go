package lowering_test

import (
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// mlpStep traces one training step of a network of the given depth, with dense layers,
// normalization, dropout, loss, gradients and Adam.
func mlpStep(t testing.TB, opts lowering.Options, depth int) *lowering.Program {
	t.Helper()
	g := graph.NewGraph(lowering.New(opts), "mlp step")
	store := model.NewStore()
	require.NoError(t, store.SetRNGStateFromSeed(42))
	model.SetStore(g, store)
	store.SetTraining(g, true)
	scope := store.RootScope()

	x := graph.Parameter(g, "x", f32(16, 32))
	y := graph.Parameter(g, "y", f32(16, 1))
	h := x
	for i := range depth {
		layer := scope.In("layer_%d", i)
		h = layers.DenseWithBias(layer.In("dense"), h, 64)
		h = norm.LayerNorm(layer, h, -1).Done()
		h = graph.Tanh(h)
		h = layers.DropoutStatic(layer, h, 0.1)
	}
	h = layers.DenseWithBias(scope.In("output"), h, 1)
	l := graph.ReduceAllMean(loss.MeanSquaredError([]*graph.Node{y}, []*graph.Node{h}))
	grads := scope.BuildTrainableVariablesGradientsGraph(l)
	optimizer.Adam().Done().(train.OptimizeWithGradients).UpdateGraphWithGradients(scope, grads, l.DType())

	outputs := []*graph.Node{l}
	for v := range store.IterVariables() {
		if v.ChangedInGraph(g) {
			outputs = append(outputs, v.NodeValue(g))
		}
	}
	require.NoError(t, g.Compile(outputs...))
	return g.Executable().(*lowering.Executable).Program()
}

func TestSameGraphGivesSameBytes(t *testing.T) {
	first := text(t, mlpStep(t, lowering.Options{}, 6))
	for range 19 {
		require.Equal(t, string(first), string(text(t, mlpStep(t, lowering.Options{}, 6))))
	}
	for _, op := range []string{"dot_general", "rng_bit_generator", "tanh", "reduce", "sqrt"} {
		assert.Contains(t, string(first), "stablehlo."+op)
	}
}

func TestProgramKeepsParameterNamesAndShapes(t *testing.T) {
	p := mlpStep(t, lowering.Options{}, 1)
	require.Equal(t, len(p.ParameterNames), len(p.Parameters))
	require.Equal(t, len(p.ParameterNames), len(p.Main().Parameters))
	assert.Contains(t, p.ParameterNames, "x")
	slashed := false
	for _, name := range p.ParameterNames {
		slashed = slashed || strings.HasPrefix(name, "/")
	}
	assert.True(t, slashed, "variables keep their paths: %v", p.ParameterNames)
	assert.Equal(t, f32(), p.Outputs[0])
	assert.Equal(t, 1, p.Replicas)
}

// BenchmarkTraceAndLower measures tracing and lowering from GoMLX calls to text.
func BenchmarkTraceAndLower(b *testing.B) {
	b.ReportAllocs()
	bytes := 0
	for b.Loop() {
		out, err := mlpStep(b, lowering.Options{}, 6).Text()
		require.NoError(b, err)
		bytes = len(out)
	}
	b.ReportMetric(float64(bytes), "textbytes")
}
