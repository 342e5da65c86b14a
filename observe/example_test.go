package observe_test

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/observe/labels"
	"github.com/tpustrategy/tpustrategy/observe/otel"
	"github.com/tpustrategy/tpustrategy/observe/prom"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// A run that Prometheus scrapes, whose spans go where the process's spans go, and whose goroutines
// are labeled in profiles.
func Example() {
	run := func(ctx context.Context, sys *system.System, newStep func(*strategy.TPUStrategy) *train.Step,
		data fit.Data) error {
		metrics, err := prom.New(prometheus.DefaultRegisterer, prom.Options{})
		if err != nil {
			return err
		}
		spans, err := otel.New(otel.Options{Parent: ctx})
		if err != nil {
			return err
		}
		http.Handle("/metrics", promhttp.Handler())
		strat, err := strategy.New(sys, strategy.Options{Phases: func(p phase.Phase) {
			metrics.Phase(p)
			spans.Phase(p)
		}})
		if err != nil {
			return err
		}
		defer strat.Close()
		_, err = fit.Run(ctx, newStep(strat), data, fit.Options{Steps: 1000, Every: 50},
			labels.Hook("job", "digits"), metrics.Hook(), spans.Hook())
		return err
	}
	_ = run
}
