package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// wideModel has two layers of width x width. With a replica's gradients and Adam's moments there
// are four copies of each.
func wideModel(width int) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := graph.Tanh(layers.Dense(rc.Scope("up"), in[0], false, width))
		h = graph.Tanh(layers.Dense(rc.Scope("wide"), h, false, width))
		y := layers.Dense(rc.Scope("down"), h, false, 1)
		return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
	}
}

func TestAOTATooLargeModelIsRefusedWithItsLargestTensorsAndFitsWhenSplit(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	const width = 40 << 10 // 6.25 GiB of weights
	x, y := strategytest.BatchShapes(64)
	compile := func(p int) error {
		opts := strategy.Options{LogicalDevices: p}
		if p > 1 {
			opts.Variables = logical.Rules{
				logical.Match(`up/.*weights`, logical.SplitInto(1, p)),
				logical.Match(`wide/.*weights`, logical.SplitInto(1, p)),
			}
		}
		strat := strategytest.Ahead(t, "v5e:4x4", opts)
		store := model.NewStore()
		_, err := strategytest.OK(train.New(strat, store, optimizer.Adam().Done(), wideModel(width),
			train.Options{})).Compiled(ctx, x, y)
		return err
	}
	err := compile(1)
	var memory *strategy.MemoryError
	require.ErrorAs(t, err, &memory)
	t.Log(err, memory.Log)
	require.ErrorIs(t, err, pjrt.ResourceExhausted)
	assert.NotEmpty(t, memory.Used)
	assert.NotEmpty(t, memory.Limit)
	require.NotEmpty(t, memory.Largest)
	assert.Contains(t, memory.Largest[0].Name, "/wide/dense/weights")
	assert.Equal(t, int64(4*width*width), memory.Largest[0].BytesPerDevice)
	assert.ErrorContains(t, err, "use more logical devices")
	r, err := report.Of(memory.Step)
	require.NoError(t, err, "a step that does not fit has a report")
	assert.Equal(t, report.TooLarge, r.Memory.Verdict)
	assert.Greater(t, r.Memory.Needs, r.Memory.Limit)
	assert.NotEmpty(t, r.Suggestions)
	assert.Equal(t, memory.Suggestions, r.Suggestions)
	assert.NotEmpty(t, memory.Temporaries)
	assert.Equal(t, memory.Temporaries, r.Temporaries)
	largest := int64(0)
	for _, tensor := range r.Tensors {
		if tensor.Role == "variable" {
			largest = max(largest, tensor.BytesPerCore)
		}
	}
	assert.Equal(t, memory.Largest[0].BytesPerDevice, largest)
	require.NoError(t, compile(8))
}
