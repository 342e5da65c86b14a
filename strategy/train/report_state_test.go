package train_test

import (
	"bytes"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The report lists, in each format, the global shape, a device's shard and the sharded axes of
// variables that 4 replicas shard.
func TestTheReportOfSharedState(t *testing.T) {
	s := strategytest.New(t, 4, 2, strategy.Options{Replicas: 4, LogicalDevices: 2,
		Variables: strategytest.Share(logical.ShardParameters, 0)})
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("hidden"), in[0], false, 64)))
	}, train.Options{}))
	x, _ := strategytest.Sums(8, 254)
	compiled, err := step.Compiled(t.Context(), x)
	require.NoError(t, err)
	r, err := report.Of(compiled)
	require.NoError(t, err)
	var weights *memory.Tensor
	for i, v := range r.Tensors {
		if v.Name == "/hidden/dense/weights" {
			weights = &r.Tensors[i]
		}
	}
	require.NotNil(t, weights)
	assert.Equal(t, []int{254, 64}, weights.Shape)
	assert.Equal(t, []int{254, 16}, weights.Shard)
	assert.Equal(t, &memory.ReplicaShard{Dim: 1, Replicas: 4, Size: 16}, weights.ReplicaShard)
	assert.Equal(t, int64(4*254*64), weights.TotalBytes)
	assert.Equal(t, 2, weights.Copies, "each logical device of a replica has the replica's part")
	var text, page bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.NoError(t, r.WriteHTML(&page))
	assert.Regexp(t,
		`variable +/hidden/dense/weights +1 +Float32\[254 64\] +\[254 16\] +15.88 KiB +2 +dimension 1 over 4 replicas`,
		text.String())
	assert.Contains(t, page.String(), `<td>Float32[254, 64]</td><td>[254, 16]</td>`)
	assert.Contains(t, page.String(), `<td class="full">dimension 1 over 4 replicas</td>`)
}
