package train

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// accumulator stores a step's metrics on the devices, in a sync-on-read variable of shape [n, 2].
// In each replica the variable has a row for each metric: a weighted sum and the sum of the
// weights. The rows after the metrics are gauges. A gauge is a value of the last applied step, with
// weight 1.
type accumulator struct {
	metrics []Metric
	gauges  []string
	state   *strategy.Variable
}

// newAccumulator creates the variable that stores a step's metrics. It returns nil for a step
// without metrics.
func newAccumulator(s *strategy.TPUStrategy, step string, metrics []Metric, gauges []string) (a *accumulator,
	err error) {
	a = &accumulator{metrics: slices.Clone(metrics), gauges: gauges}
	if a.len() == 0 {
		return nil, nil
	}
	path := savedstep.MetricStateName(step, a.describe())
	used := func(v *strategy.Variable) bool { return v.Path() == path }
	for i := 2; slices.ContainsFunc(s.DistributedVariables(), used); i++ {
		path = savedstep.MetricStateName(fmt.Sprintf("%s_%d", step, i), a.describe())
	}
	a.state, err = engine.Internal(s).NewMetricState(path, a.len())
	return a, err
}

// savedMetrics describes the metrics for a step file.
func (a *accumulator) savedMetrics() savedstep.Metrics {
	m := savedstep.Metrics{State: a.state.Path(), Names: a.names()}
	for _, metric := range a.metrics {
		m.Forms = append(m.Forms, int(metric.Form))
	}
	return m
}

// accumulatorOf returns the accumulator of a function that was loaded from a step file. It returns
// nil for a function without metrics.
func accumulatorOf(f *strategy.Function) *accumulator {
	m, state := engine.Internal(f).Metrics()
	if state == nil {
		return nil
	}
	a := &accumulator{state: state, gauges: m.Names[len(m.Forms):]}
	for i, form := range m.Forms {
		a.metrics = append(a.metrics, Metric{Name: m.Names[i], Form: Form(form)})
	}
	return a
}

func (a *accumulator) len() int { return len(a.metrics) + len(a.gauges) }

func (a *accumulator) zeros() *tensors.Tensor {
	return tensors.FromFlatDataAndDimensions(make([]float64, 2*a.len()), a.len(), 2)
}

// names returns the names of the metrics, followed by the gauges.
func (a *accumulator) names() (names []string) {
	for _, m := range a.metrics {
		names = append(names, m.Name)
	}
	return append(names, a.gauges...)
}

// describe returns the name and form of each metric, such as "loss:mean". The form of a gauge is "last".
func (a *accumulator) describe() (all []string) {
	for i, name := range a.names() {
		form := "last"
		if i < len(a.metrics) {
			form = a.metrics[i].Form.String()
		}
		all = append(all, url.PathEscape(name)+":"+form)
	}
	return all
}

// read computes the values of the metrics from the sums of all replicas.
func (a *accumulator) read(ctx context.Context) ([]Reading, error) {
	value, err := a.state.Value(ctx)
	if err != nil {
		return nil, err
	}
	flat, err := tensors.CopyFlatData[float64](value)
	if err != nil {
		return nil, err
	}
	all := make([]Reading, a.len())
	for i, name := range a.names() {
		sum, weight := flat[2*i], flat[2*i+1]
		if i < len(a.metrics) {
			all[i] = Reading{Name: name, Value: a.metrics[i].Form.compute(sum, weight), Weight: weight}
		} else {
			all[i] = Reading{Name: name, Value: sum / weight, Weight: min(weight, 1)}
		}
	}
	return all, nil
}

func (a *accumulator) reset(ctx context.Context) error { return a.state.Assign(ctx, a.zeros()) }

// Metrics reads the step's metrics. The metrics of Options.Metrics are first, in their order,
// accumulated over all rows since the state was created or since [Step.ResetMetrics]. They are followed
// by the values of the last applied step that Options enable: "gradient_norm", "parameter_norm",
// "update_norm" and "learning_rate". A metric without values is NaN with weight 0. A step whose update
// was not applied because of [NonFinite] or a dynamic loss scale does not count in any metric.
//
// The metrics are accumulated on the devices, so a step that is not read has no cost on the host.
// Metrics waits for running steps, sums the replicas' states with one all-reduce, and copies 16
// bytes for each metric. With several processes, all must call it at the same point. For a step
// without metrics the error matches errors.ErrUnsupported.
func (t *Step) Metrics(ctx context.Context) ([]Reading, error) {
	if err := t.requireMetrics(ctx, "Metrics"); err != nil {
		return nil, err
	}
	return t.metrics.read(ctx)
}

// ResetMetrics clears the step's metrics. With several processes, all must call it at the same
// point. Errors are those of [Step.Metrics].
func (t *Step) ResetMetrics(ctx context.Context) error {
	if err := t.requireMetrics(ctx, "ResetMetrics"); err != nil {
		return err
	}
	return t.metrics.reset(ctx)
}

// MetricNames returns the names of the metrics in the order of [Step.Metrics], without reading them.
func (t *Step) MetricNames() []string {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.names()
}

// MetricState returns the variable with the step's metrics, or nil for a step without
// metrics. The variable belongs to the strategy's scope, so that checkpoint.StrategyGroup saves it
// and a resumed run continues the metrics. Its path contains the names of the step and of the
// metrics. A checkpoint of different metrics therefore does not change it.
func (t *Step) MetricState() *strategy.Variable {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.state
}

// requireMetrics returns an error if the step has no metrics or is closed, or if it is called in a
// traced function.
func (t *Step) requireMetrics(ctx context.Context, call string) error {
	if err := strategy.RefuseTracing(ctx, call, fault.InsteadOfReading); err != nil {
		return err
	}
	if t.metrics == nil {
		return &errkind.Fault{Op: "train: " + t.name, Reason: "it has no metrics",
			Hint: "set Options.Metrics, such as to train.MeanLoss()", Class: errkind.NotImplementedError,
			Match: errors.ErrUnsupported}
	}
	return engine.Internal(t.function).CheckOpen()
}
