package prom_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/observe/prom"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A program serves /metrics while it trains. After an interrupt, the metrics report the result
// "interrupted".
func TestMetricsAreServedDuringTheRun(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := prom.New(registry, prom.Options{})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := httptest.NewServer(mux)
	defer server.Close()
	scrape := func() string {
		answer, err := http.Get(server.URL + "/metrics")
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return string(body)
	}

	s := strategytest.New(t, 2, 1, strategy.Options{Phases: metrics.Phase})
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("dense"), in[0], true, 1)))
		}, train.Options{}))
	batches := fit.Batches(func(yield func([]any, error) bool) {
		for yield([]any{[][]float32{{1, 2}, {3, 4}}}, nil) {
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	during := ""
	_, err = fit.Run(ctx, step, batches, fit.Options{Every: 5}, metrics.Hook(), fit.Checkpoint(t.TempDir(), 10),
		fit.Each(20, func(context.Context, *fit.State) error {
			during = scrape()
			cancel()
			return nil
		}))
	var interrupted *interrupt.Error
	require.ErrorAs(t, err, &interrupted)
	for _, line := range []string{`tpustrategy_step{process="0"} 15`, `tpustrategy_running{process="0"} 1`,
		`tpustrategy_activities_total{activity="input",process="0"} 20`,
		`tpustrategy_activities_total{activity="launch",process="0"} 20`,
		`tpustrategy_activities_total{activity="save",process="0"} 1`} {
		assert.Contains(t, during, line+"\n")
	}
	assert.Regexp(t,
		regexp.MustCompile(`tpustrategy_activity_seconds_total\{activity="save",process="0"\} [0-9.e-]*[1-9]`), during)
	after := scrape()
	assert.Contains(t, after, `tpustrategy_runs_total{process="0",result="interrupted"} 1`)
	assert.Contains(t, after, `tpustrategy_running{process="0"} 0`)
}
