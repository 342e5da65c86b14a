package otel_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/observe/otel"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func named(spans tracetest.SpanStubs, name string) (out tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

func of(s tracetest.SpanStub, key string) attribute.Value {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

func TestARunIsSpansAndMetrics(t *testing.T) {
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	seen, err := otel.New(otel.Options{TracerProvider: tracers,
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		Attributes:    []attribute.KeyValue{attribute.String("run", "a")}})
	require.NoError(t, err)
	s := strategytest.New(t, 2, 1, strategy.Options{Phases: seen.Phase})
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("dense"), in[0], true, 1)))
		}, train.Options{Name: "fitted"}))
	batches := fit.Batches(func(yield func([]any, error) bool) {
		for yield([]any{[][]float32{{1, 2}, {3, 4}}}, nil) {
		}
	})
	ctx, outer := tracers.Tracer("test").Start(t.Context(), "outer")
	_, err = fit.Run(ctx, step, batches, fit.Options{Steps: 6, Every: 2}, seen.Hook())
	outer.End()
	require.NoError(t, err)

	all := spans.GetSpans()
	runs := named(all, "train")
	require.Len(t, runs, 1)
	assert.Equal(t, outer.SpanContext().SpanID(), runs[0].Parent.SpanID())
	assert.Equal(t, int64(6), of(runs[0], "tpustrategy.last_step").AsInt64())
	assert.Equal(t, "a", of(runs[0], "run").AsString())
	var firsts, lasts []int64
	for _, s := range named(all, "steps") {
		assert.Equal(t, runs[0].SpanContext.SpanID(), s.Parent.SpanID())
		if last := of(s, "tpustrategy.last_step"); last.Type() == attribute.INT64 {
			firsts, lasts = append(firsts, of(s, "tpustrategy.first_step").AsInt64()), append(lasts, last.AsInt64())
			assert.Positive(t, of(s, "tpustrategy.metric.loss").AsFloat64())
		}
	}
	assert.Equal(t, []int64{1, 2, 3, 5}, firsts)
	assert.Equal(t, []int64{1, 2, 4, 6}, lasts)
	compiling := named(all, "compiling")
	require.Len(t, compiling, 1)
	assert.Equal(t, "fitted", of(compiling[0], "tpustrategy.program").AsString())
	assert.Positive(t, of(compiling[0], "tpustrategy.text_bytes").AsInt64())

	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	sums := map[string]int64{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			require.Len(t, sum.DataPoints, 1)
			sums[m.Name] = sum.DataPoints[0].Value
		}
	}
	assert.Equal(t, map[string]int64{"tpustrategy.steps": 6, "tpustrategy.rows": 12}, sums)
}

func TestWhatFailsHasItsErrorInTheSpan(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	seen, err := otel.New(otel.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
	require.NoError(t, err)
	s := strategytest.New(t, 1, 1, strategy.Options{Phases: seen.Phase})
	batches := fit.Batches(func(yield func([]any, error) bool) { yield([]any{[][]float32{{1, 2}}}, nil) })
	broken := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(),
		func(*strategy.ReplicaContext, []*graph.Node) *graph.Node {
			panic(errors.New("no model"))
		}, train.Options{}))
	_, err = fit.Run(t.Context(), broken, batches, fit.Options{Steps: 1}, seen.Hook())
	require.Error(t, err)
	tracing := named(spans.GetSpans(), "tracing")
	require.Len(t, tracing, 1)
	assert.Equal(t, codes.Error, tracing[0].Status.Code)

	fine := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(layers.Dense(rc.Scope("dense"), in[0], true, 1))
		}, train.Options{}))
	_, err = fit.Run(t.Context(), fine, batches, fit.Options{Steps: 1}, seen.Hook(),
		fit.Each(1, func(context.Context, *fit.State) error {
			return errors.New("a hook that fails")
		}))
	require.Error(t, err)
	runs := named(spans.GetSpans(), "train")
	require.NotEmpty(t, runs)
	assert.Contains(t, runs[len(runs)-1].Status.Description, "a hook that fails")
}
