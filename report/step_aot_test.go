package report_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A small half-precision step, compiled by libtpu: the layers share its time like its products, the
// two peaks agree, and no predicted time is below the floor.
func TestAOTReportOfASmallStep(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	strat, err := strategy.NewAheadOfTime(plugintest.Slice(t, "v5e:1x1"), strategy.Options{})
	require.NoError(t, err)
	defer strat.Close()
	step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		x := norm.RMSNorm(rc.Scope("norm"), in[0]).Done()
		x = graph.Tanh(dense(rc.Scope("up"), x, 1024))
		return graph.ReduceAllMean(graph.Square(dense(rc.Scope("down"), x, 256)))
	}, train.Options{Precision: precision.MixedBFloat16})
	require.NoError(t, err)
	compiled, err := step.Compiled(t.Context(), shapes.Make(dtypes.Float32, 512, 256))
	require.NoError(t, err)
	r, err := report.Of(compiled)
	require.NoError(t, err)
	products := map[string]float64{}
	for _, l := range r.Schedule.Layers {
		if l.Kind == "products" {
			products[l.Layer] += l.Seconds
		}
	}
	assert.Positive(t, products["up/dense"])
	assert.Positive(t, products["down/dense"])
	assert.Less(t, products["norm/rms_norm"], 0.2*r.Predicted.Products, "%v", products)
	for _, l := range r.Lines {
		if l.File != "" {
			assert.True(t, strings.HasSuffix(l.File, "_test.go"), l.String())
		}
	}
	assert.Equal(t, r.Schedule.Peak, r.Memory.Peak)
	assert.Positive(t, r.Memory.Fast)
	assert.GreaterOrEqual(t, r.Predicted.Seconds, r.Cost.FloorSeconds)
}
