package stepfile_test

import (
	"bytes"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A file whose metrics do not match their state is rejected.
func TestMetricsOfAFileFitTheirState(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	held := strategytest.OK(train.NewEvaluation(s, model.NewStore(), func(_ *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(in[0])
	}, train.Options{Metrics: []train.Metric{train.MeanLoss(), train.Perplexity()}}))
	compiled, err := held.Compiled(t.Context(), []float32{1, 2})
	require.NoError(t, err)
	file := mustSave(t, compiled)
	const was = `"metrics":{"state":"evaluation/.metrics/loss:mean,perplexity:exponential","names":["loss","perplexity"],"forms":["mean","exponential"]}`
	for name, metrics := range map[string]string{
		"another state": `"metrics":{"state":"evaluation","names":["loss","perplexity"],"forms":["mean","exponential"]}`,
		"no names":      `"metrics":{"state":"evaluation/.metrics/loss:mean,perplexity:exponential","names":[],"forms":["mean","exponential"]}`,
		"more names":    `"metrics":{"state":"evaluation/.metrics/loss:mean,perplexity:exponential","names":["loss","perplexity","more"],"forms":["mean","exponential"]}`,
		"more forms":    `"metrics":{"state":"evaluation/.metrics/loss:mean,perplexity:exponential","names":["loss","perplexity"],"forms":["mean","mean","mean"]}`,
		"no form":       `"metrics":{"state":"evaluation/.metrics/loss:mean,perplexity:exponential","names":["loss","perplexity"],"forms":["mean","median"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stepfile.LoadEvaluation(t.Context(), strategytest.New(t, 2, 1),
				bytes.NewReader(stepfile.Rewrite(t, file, was, metrics)), model.NewStore())
			var refused *stepfile.Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, stepfile.Damaged, refused.Reason)
		})
	}
	loaded, err := stepfile.LoadEvaluation(t.Context(), strategytest.New(t, 2, 1), bytes.NewReader(file), model.NewStore())
	require.NoError(t, err)
	require.NoError(t, loaded.Run(t.Context(), []float32{1, 2}))
	all, err := loaded.Results(t.Context())
	require.NoError(t, err)
	assert.Equal(t, train.Reading{Name: "loss", Value: 1.5, Weight: 2}, all[0])
}
