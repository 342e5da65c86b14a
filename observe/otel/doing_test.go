package otel_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/observe/otel"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// In an interrupted and resumed run, input waits, launches, saves and restores have their own spans
// within the span of the run, and their sums are attributes of the steps.
func TestSavesRestoresAndWaitsAreSpans(t *testing.T) {
	dir := t.TempDir()
	run := func(ctx context.Context, slow bool, hooks ...fit.Hook) (tracetest.SpanStubs, error) {
		spans := tracetest.NewInMemoryExporter()
		seen, err := otel.New(otel.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
		require.NoError(t, err)
		s := strategytest.New(t, 2, 1, strategy.Options{Phases: seen.Phase})
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("dense"), in[0], true, 1)))
			}, train.Options{}))
		batches := fit.Batches(func(yield func([]any, error) bool) {
			for i := 0; ; i++ {
				if slow && i == 3 {
					time.Sleep(40 * time.Millisecond)
				}
				if !yield([]any{[][]float32{{1, 2}, {3, 4}}}, nil) {
					return
				}
			}
		})
		_, err = fit.Run(ctx, step, batches, fit.Options{Steps: 8, Every: 2, Resume: true},
			append(hooks, fit.Checkpoint(dir, 2), seen.Hook())...)
		return spans.GetSpans(), err
	}
	ctx, cancel := context.WithCancel(t.Context())
	first, err := run(ctx, true, fit.Each(6, func(context.Context, *fit.State) error { cancel(); return nil }))
	require.Error(t, err)
	runs := named(first, "train")
	require.Len(t, runs, 1)
	assert.Equal(t, "interrupted", of(runs[0], "tpustrategy.result").AsString())
	within := func(all tracetest.SpanStubs) {
		for _, s := range all {
			assert.Equal(t, runs[0].SpanContext.SpanID(), s.Parent.SpanID())
			assert.False(t, s.StartTime.Before(runs[0].StartTime), "%s", s.Name)
			assert.False(t, s.EndTime.After(runs[0].EndTime), "%s", s.Name)
		}
	}
	assert.GreaterOrEqual(t, len(named(first, "save")), 3, "after 2, 4 and 6 steps")
	within(named(first, "save"))
	waits := named(first, "input")
	require.Len(t, waits, 1, "the others are short")
	assert.GreaterOrEqual(t, waits[0].EndTime.Sub(waits[0].StartTime), 40*time.Millisecond)
	within(waits)
	slowest := 0.0
	for _, s := range named(first, "steps") {
		if v := of(s, "tpustrategy.seconds.input"); v.Type() == attribute.FLOAT64 {
			slowest = max(slowest, v.AsFloat64())
			assert.Positive(t, of(s, "tpustrategy.seconds.launch").AsFloat64())
		}
	}
	assert.GreaterOrEqual(t, slowest, 0.04)

	second, err := run(t.Context(), false)
	require.NoError(t, err)
	runs = named(second, "train")
	require.Len(t, runs, 1)
	assert.Equal(t, "done", of(runs[0], "tpustrategy.result").AsString())
	assert.Equal(t, int64(6), of(runs[0], "tpustrategy.resumed").AsInt64())
	require.NotEmpty(t, named(second, "restore"))
	within(named(second, "restore"))
}
