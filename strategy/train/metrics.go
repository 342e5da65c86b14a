package train

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// accumulator holds the metrics of a step on the devices. The state is a sync-on-read variable: in
// each replica, for each metric, a weighted sum and the sum of the weights. The gauges follow the
// metrics: their values are those of the last step that was taken, of weight 1 in each replica.
type accumulator struct {
	metrics []Metric
	gauges  []string
	state   *strategy.Variable
}

// newAccumulator is nil for a step without metrics.
func newAccumulator(s *strategy.TPUStrategy, step string, metrics []Metric, gauges []string) (a *accumulator, err error) {
	a = &accumulator{metrics: slices.Clone(metrics), gauges: gauges}
	if a.len() == 0 {
		return nil, nil
	}
	path := saved.StateName(step, a.holds())
	used := func(v *strategy.Variable) bool { return v.Path() == path }
	for i := 2; slices.ContainsFunc(s.DistributedVariables(), used); i++ {
		path = saved.StateName(fmt.Sprintf("%s_%d", step, i), a.holds())
	}
	a.state, err = innerStrategy(s).Accumulator(path, a.len())
	return a, err
}

// saved says in a step's file what the metrics are.
func (a *accumulator) saved() saved.Metrics {
	m := saved.Metrics{State: a.state.Path(), Names: a.names()}
	for _, metric := range a.metrics {
		m.Forms = append(m.Forms, int(metric.Form))
	}
	return m
}

// accumulatorOf is that of a function, nil without metrics.
func accumulatorOf(f *strategy.Function) *accumulator {
	m, state := innerFunction(f).Metrics()
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

// names are those of the metrics, then of the gauges.
func (a *accumulator) names() (names []string) {
	for _, m := range a.metrics {
		names = append(names, m.Name)
	}
	return append(names, a.gauges...)
}

// holds says what the state holds, in its order: each name and form. A gauge's form is "last".
func (a *accumulator) holds() (all []string) {
	for i, name := range a.names() {
		form := "last"
		if i < len(a.metrics) {
			form = a.metrics[i].Form.String()
		}
		all = append(all, url.PathEscape(name)+":"+form)
	}
	return all
}

// read adds up the replicas' states.
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
			all[i] = Reading{Name: name, Value: a.metrics[i].Form.of(sum, weight), Weight: weight}
		} else {
			all[i] = Reading{Name: name, Value: sum / weight, Weight: min(weight, 1)}
		}
	}
	return all, nil
}

func (a *accumulator) reset(ctx context.Context) error { return a.state.Assign(ctx, a.zeros()) }

// Metrics reads the step's metrics: those of Options.Metrics in their order, over all rows since
// the state was new or since [Step.ResetMetrics], and then those of the last step that was taken:
// "gradient_norm", "parameter_norm", "update_norm" and "learning_rate", as far as Options ask for
// them. A metric to which nothing came is NaN with weight 0. A step that was not taken, for what
// [NonFinite] or a dynamic loss scale found, counts in none.
//
// The metrics are accumulated on the devices: a step that is not read costs the host nothing.
// Metrics waits for the steps under way, adds up the replicas' states by one all-reduce and copies
// 16 bytes for each metric. With several processes all call it at the same point. The error matches
// errors.ErrUnsupported for a step without metrics.
func (t *Step) Metrics(ctx context.Context) ([]Reading, error) {
	if err := t.hasMetrics(ctx, "Metrics"); err != nil {
		return nil, err
	}
	return t.metrics.read(ctx)
}

// ResetMetrics makes the step's metrics as new: nothing came to them. With several processes all
// call it at the same point. Errors are those of [Step.Metrics].
func (t *Step) ResetMetrics(ctx context.Context) error {
	if err := t.hasMetrics(ctx, "ResetMetrics"); err != nil {
		return err
	}
	return t.metrics.reset(ctx)
}

// MetricNames returns the names of what [Step.Metrics] reads, in its order, without reading it.
func (t *Step) MetricNames() []string {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.names()
}

// MetricState returns the variable that holds the step's metrics, or nil without any. It belongs to
// the strategy's scope, so that checkpoint.Strategy saves it, and a run that resumes goes on with the
// metrics as they were. Its path says the step's name and the metrics': a checkpoint of other metrics
// leaves it as it is.
func (t *Step) MetricState() *strategy.Variable {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.state
}

// hasMetrics refuses a step without metrics, and the code of a step that is being traced.
func (t *Step) hasMetrics(ctx context.Context, call string) error {
	if err := strategy.RefuseTracing(ctx, call, fault.InsteadOfReading); err != nil {
		return err
	}
	if t.metrics == nil {
		return &errkind.Fault{Op: "train: " + t.name, Reason: "it has no metrics",
			Hint: "set Options.Metrics, such as to train.MeanLoss()", Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	return t.inner.Check()
}
