package strategytest

import (
	"strings"
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
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Axes returns logical axes with the given names. Each axis has 2 devices.
func Axes(names ...string) (axes []sharding.Axis) {
	for _, name := range names {
		axes = append(axes, sharding.Axis{Name: name, Size: 2})
	}
	return axes
}

// Over returns an annotation that splits each dimension over named axes. Several names for a
// dimension are separated by commas. Names that are neither in the mesh nor the replica axis are
// ignored.
func Over(mesh sharding.Mesh, dims ...string) logical.Annotation {
	for i, dim := range dims {
		var has []string
		for name := range strings.SplitSeq(dim, ",") {
			if _, ok := mesh.AxisSize(name); ok || name == logical.ReplicaAxis {
				has = append(has, name)
			}
		}
		dims[i] = strings.Join(has, ",")
	}
	return logical.SplitOverAxes(dims...)
}

// Named is the loss of an embedding followed by a transformer layer. Each tensor is split over the
// axes model, sequence and expert that the strategy has.
func Named(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	return NamedOver(rc, in, func(x *graph.Node) *graph.Node {
		return NamedLayer(rc.Strategy().LogicalMesh(), rc.Scope(), x)
	})
}

// NamedOver is like [Named], but with the given layers.
func NamedOver(rc *strategy.ReplicaContext, in []*graph.Node, layers func(x *graph.Node) *graph.Node) *graph.Node {
	x := namedEmbedding(rc, in[0])
	return graph.ReduceAllMean(graph.Square(graph.Sub(layers(x), in[1])))
}

func namedEmbedding(rc *strategy.ReplicaContext, tokens *graph.Node) *graph.Node {
	x := layers.Embedding(rc.Scope("tokens"), tokens, dtypes.Float32, 16, 8)
	return logical.Apply(x, Over(rc.Strategy().LogicalMesh(), "", "sequence", ""))
}

// NamedLayer is the layer of [Named] on a mesh of logical axes.
func NamedLayer(mesh sharding.Mesh, scope *model.Scope, x *graph.Node) *graph.Node {
	put := func(x *graph.Node, dims ...string) *graph.Node { return logical.Apply(x, Over(mesh, dims...)) }
	project := func(name string) *graph.Node {
		return put(layers.Dense(scope.At("%s", name), x, false, 4, 2), "", "sequence", "model", "")
	}
	scores := put(graph.Einsum("blhe,bmhe->bhlm", project("query"), project("key")), "", "model,expert", "sequence", "")
	attended := put(graph.Einsum("bhlm,bmhe->blhe", graph.Softmax(scores, -1), project("value")), "", "sequence", "model",
		"")
	attended = graph.Reshape(attended, attended.Shape().Dimensions[0], attended.Shape().Dimensions[1], 8)
	x = put(graph.Add(x, layers.Dense(scope.At("out"), attended, false, 8)), "", "sequence", "")
	h := graph.Tanh(put(layers.Dense(scope.At("up"), x, true, 16), "", "sequence", "model,expert"))
	return put(graph.Add(x, layers.Dense(scope.At("down"), h, true, 8)), "", "expert", "")
}

// NamedOptions returns options for [Named] with the given replicas and axes. The rules split the
// variables over the axes.
func NamedOptions(replicas int, axes ...sharding.Axis) strategy.Options {
	mesh := OK(logical.NewMesh(0, axes...))
	rule := func(pattern string, dims ...string) logical.Rule {
		return logical.Match(pattern, Over(mesh, dims...))
	}
	return strategy.Options{Replicas: replicas, LogicalAxes: axes, Variables: logical.Rules{
		rule(`tokens/embeddings`, "model,sequence", ""),
		rule(`(query|key|value)/.*weights`, "", "model"),
		rule(`out/.*weights`, "model", "expert"),
		rule(`up/.*weights`, "", "expert,model"),
		rule(`up/.*biases`, "model"),
		rule(`down/.*weights`, "model", "sequence"),
	}}
}

// NamedStep returns a training step of [Named] with a new store.
func NamedStep(s *strategy.TPUStrategy) *train.Step {
	return OK(train.New(s, SeededStore(), optimizer.Adam().LearningRate(0.01).Done(), Named, train.Options{}))
}

// NamedBatch returns a batch of 8 rows for [Named]. Its contents depend on step.
func NamedBatch(step int) (x, y *tensors.Tensor) {
	xs, ys := make([]int32, 8*4), make([]float32, 8*4*8)
	for i := range xs {
		xs[i] = int32((i*5 + step*3) % 16)
	}
	for i := range ys {
		ys[i] = float32((i*7+step)%11)/11 - 0.5
	}
	return tensors.FromFlatDataAndDimensions(xs, 8, 4), tensors.FromFlatDataAndDimensions(ys, 8, 4, 8)
}

// NamedLosses runs training steps on the named batches from, from+1, ..., to-1 and returns their
// losses.
func NamedLosses(t testing.TB, step *train.Step, from, to int) (all []float64) {
	t.Helper()
	for i := from; i < to; i++ {
		x, y := NamedBatch(i)
		loss, err := step.Run(t.Context(), x, y)
		require.NoError(t, err)
		all = append(all, Float64(t, loss))
	}
	return all
}

// NamedShapes returns the shapes of a batch of [Named] with the given number of rows.
func NamedShapes(rows int) (x, y shapes.Shape) {
	return shapes.Make(dtypes.Int32, rows, 4), shapes.Make(dtypes.Float32, rows, 4, 8)
}
