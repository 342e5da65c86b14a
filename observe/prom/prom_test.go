package prom_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/observe/prom"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func loss(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("dense"), in[0], true, 1), in[1])))
}

// data has 4 batches of 16 rows.
func data(t *testing.T) fit.Data {
	x, err := input.Zeros(input.Float32, 64, 8)
	require.NoError(t, err)
	y, err := input.Zeros(input.Float32, 64, 1)
	require.NoError(t, err)
	return fit.Dataset(input.FromSlices(input.Tuple(input.Leaf(x), input.Leaf(y))).Repeat(-1).Batch(16, true))
}

// scrape reads a registry as Prometheus does.
func scrape(t *testing.T, registry *prometheus.Registry) string {
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	answer, err := http.Get(server.URL)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}

func TestARunIsScraped(t *testing.T) {
	registry := prometheus.NewRegistry()
	seen, err := prom.New(registry, prom.Options{Labels: prometheus.Labels{"run": "a"}})
	require.NoError(t, err)
	s := strategytest.New(t, 2, 1, strategy.Options{Phases: seen.Phase})
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), loss, train.Options{}))
	during := ""
	_, err = fit.Run(t.Context(), step, data(t), fit.Options{Steps: 6, Every: 2}, seen.Hook(),
		fit.Each(4, func(context.Context, *fit.State) error {
			during = scrape(t, registry)
			return nil
		}))
	require.NoError(t, err)
	assert.Contains(t, during, `tpustrategy_running{process="0",run="a"} 1`)
	assert.Contains(t, during, `tpustrategy_step{process="0",run="a"} 2`)
	after := scrape(t, registry)
	for _, line := range []string{
		`tpustrategy_running{process="0",run="a"} 0`, `tpustrategy_step{process="0",run="a"} 6`,
		`tpustrategy_steps_total{process="0",run="a"} 6`, `tpustrategy_rows_total{process="0",run="a"} 96`,
		`tpustrategy_runs_total{process="0",result="done",run="a"} 1`,
		`tpustrategy_programs_total{process="0",result="done",run="a"} 1`,
		`tpustrategy_making_seconds_count{process="0",run="a",stage="compiling"} 1`,
		`tpustrategy_metric{name="loss",process="0",run="a"}`, `tpustrategy_step_seconds{process="0",run="a"}`,
	} {
		assert.Contains(t, after, line)
	}

	ctx, cancel := context.WithCancel(t.Context())
	_, err = fit.Run(ctx, step, data(t), fit.Options{Steps: 1000}, seen.Hook(),
		fit.Each(3, func(context.Context, *fit.State) error {
			cancel()
			return nil
		}))
	require.ErrorIs(t, err, context.Canceled)
	after = scrape(t, registry)
	assert.Contains(t, after, `tpustrategy_runs_total{process="0",result="interrupted",run="a"} 1`)
	assert.Contains(t, after, `tpustrategy_steps_total{process="0",run="a"} 9`)
}

func TestMetricsThatAreThereAlreadyLeaveNothingBehind(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "tpustrategy", Name: "running",
		Help: "another"}))
	_, err := prom.New(registry, prom.Options{})
	require.ErrorContains(t, err, "tpustrategy_running")
	step := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tpustrategy", Name: "step",
		Help: "Number of steps of the training, including steps before a resume."}, []string{"process"})
	assert.NoError(t, registry.Register(step), "the metrics before the one that failed are gone")
}

// The training packages must not depend on package observe.
func TestTheCoreDependsOnNoneOfThis(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...")
	list.Dir = "../.."
	out, err := list.Output()
	require.NoError(t, err)
	for _, name := range []string{"opentelemetry", "prometheus"} {
		assert.NotContains(t, string(out), name)
	}
	assert.Greater(t, strings.Count(string(out), "\n"), 100)
}
