package transformer_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// reduced returns the number of bytes that a core reduces over the logical devices, by dtype. It
// fails the test if another collective uses this axis.
func reduced(t *testing.T, step *train.Step, batch shapes.Shape) map[string]int64 {
	t.Helper()
	x, err := step.Compiled(t.Context(), batch)
	require.NoError(t, err)
	r, err := report.Of(x)
	require.NoError(t, err)
	by := map[string]int64{}
	for _, c := range r.CollectiveDTypes {
		if c.Axis != "replica" {
			assert.Equal(t, "all-reduce over logical", c.Kind+" over "+c.Axis)
			by[c.DType] += c.Bytes
		}
	}
	return by
}

// TestAOTHalfPrecisionCrossesTheLogicalDevicesInHalfPrecision counts the reduced bytes. Each layer
// reduces two results and the adjoints of two inputs. The adjoints of query, key and value are
// added before the reduction. The embedding and the gradient of the head's input add one reduction
// each.
func TestAOTHalfPrecisionCrossesTheLogicalDevicesInHalfPrecision(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	const replicas, logicalDevices = 4, 4
	gpt := transformer.Peer()
	gpt.Layers, gpt.Batch, gpt.Sequence, gpt.Compute = 2, 8, 64, dtypes.BFloat16
	llama := gpt
	llama.Llama, llama.KeyHeads = true, 4
	for name, c := range map[string]transformer.Config{"gpt": gpt, "llama": llama} {
		tokens := int64(c.Batch / replicas * c.Sequence)
		activations := tokens * int64(c.Width) * int64(4*c.Layers+2)
		s := strategytest.Ahead(t, "v5e:4x4", c.Options(replicas, logicalDevices))
		got := reduced(t, c.Step(s, model.NewStore()), c.TokensShape())
		t.Log(name, got)
		assert.InDelta(t, 2*activations, got["bf16"], 2048, name)
		// The maximum logit and the sum of each token are float32.
		assert.LessOrEqual(t, got["f32"], 2*4*tokens, name)
	}

	// GoMLX's layers with half-precision variables: each pair of dense layers reduces one result
	// and one adjoint.
	const rows, width, pairs = 128, 256, 2
	dense := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := graph.ConvertDType(in[0], dtypes.BFloat16)
		for i := range pairs {
			scope := []string{"first", "second"}[i]
			h := norm.LayerNorm(rc.Scope(scope, "norm"), x, -1).Done()
			h = activation.Gelu(layers.Dense(rc.Scope(scope, "up"), h, true, 4*width))
			x = graph.Add(x, layers.Dense(rc.Scope(scope, "down"), h, true, width))
		}
		return graph.ReduceAllMean(graph.Square(graph.ConvertDType(x, dtypes.Float32)))
	}
	s := strategytest.Ahead(t, "v5e:4x4", strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices,
		Variables: logical.Rules{
			logical.Match(`up/dense/weights`, logical.SplitInto(1, logicalDevices)), logical.Match(`up/dense/biases`,
				logical.SplitInto(logicalDevices)),
			logical.Match(`down/dense/weights`, logical.SplitInto(logicalDevices, 1)),
		}})
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), dense, train.Options{}))
	got := reduced(t, step, shapes.Make(dtypes.Float32, replicas*rows, width))
	t.Log("layers", got)
	assert.InDelta(t, 2*pairs*2*rows*width, got["bf16"], 2048)
	assert.Zero(t, got["f32"])
}
