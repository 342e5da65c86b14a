package fit

import (
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Loss is the name of the loss of a step, averaged over the replicas. It is measured at every
// record (see [Options].Every).
const Loss = "loss"

// MeanLoss is the name under which [train.MeanLoss] is published: the mean loss over the rows of
// all steps since the previous record.
const MeanLoss = "mean_loss"

// State gives hooks access to a run. A hook must not use it after its function returns.
type State struct {
	runner      *runner
	isChief     bool
	step        int64
	resumedFrom int64
	totalSteps  int64
	epoch       int64
	rows        int64
	metrics     []Metric
	latest      []Metric
	stopReason  string
	startTime   time.Time // launch of the first step
	warn        func(text string, args ...any)
}

// Step returns the number of completed steps of the whole run, including the steps before a resume.
func (s *State) Step() int64 { return s.step }

// ResumeEnabled reports whether [Options].Resume is set. If so, existing files of a hook belong to
// this run, even if there is no checkpoint.
func (s *State) ResumeEnabled() bool { return s.runner.options.Resume }

// ResumedFrom returns the step from which the run resumed, or 0 for a new run.
func (s *State) ResumedFrom() int64 { return s.resumedFrom }

// NextRecordStep returns the first step that the hooks have not recorded yet. A resumed run records
// this step and later steps again, so hooks that write files must first remove the data of these
// steps.
func (s *State) NextRecordStep() int64 {
	if s.runner.pendingMetrics != nil {
		return s.step
	}
	return s.step + 1 // cannot overflow: see isExactCount
}

// TotalSteps returns the total number of steps of the run, or 0 if it is not known.
func (s *State) TotalSteps() int64 { return s.totalSteps }

// Epoch returns the number of the current pass over the data, from 1.
func (s *State) Epoch() int64 { return s.epoch }

// Rows returns the number of rows of the batches of this call of Run, over all replicas.
func (s *State) Rows() int64 { return s.rows }

// Elapsed returns the time since the first step of this call of Run was launched. It does not
// include the compilation.
func (s *State) Elapsed() time.Duration {
	if s.startTime.IsZero() {
		return 0
	}
	return time.Since(s.startTime)
}

// Metrics returns the metrics of this step: the loss, the other metrics of the step, and the
// metrics that hooks have set, in this order. The caller must not modify the slice or keep it after
// the hook returns.
func (s *State) Metrics() []Metric { return s.metrics }

// Value returns a metric of this step and reports whether it was measured.
func (s *State) Value(name string) (value float64, measured bool) {
	return findMetric(s.metrics, name)
}

// Latest returns the last value of a metric in this call of Run and reports whether there is one.
func (s *State) Latest(name string) (value float64, measured bool) {
	return findMetric(s.latest, name)
}

func findMetric(metrics []Metric, name string) (float64, bool) {
	i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return 0, false
	}
	return metrics[i].Value, true
}

// SetMetric publishes a metric of this step. It replaces a metric of the same name. Invalid UTF-8
// in the name is replaced by U+FFFD, because the metric files only support UTF-8.
func (s *State) SetMetric(name string, value float64) {
	s.metrics = setMetric(s.metrics, strings.ToValidUTF8(name, "\ufffd"), value)
}

func setMetric(metrics []Metric, name string, value float64) []Metric {
	if i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name }); i >= 0 {
		metrics[i].Value = value
		return metrics
	}
	return append(metrics, Metric{name, value})
}

// mergeMetrics updates metrics with the values in newer, and appends missing metrics.
func mergeMetrics(metrics, newer []Metric) []Metric {
	for _, m := range newer {
		metrics = setMetric(metrics, m.Name, m.Value)
	}
	return metrics
}

// Stop ends the run after this step's hooks, without an error. [Result].StopReason contains the
// reason of the first call. With several processes, a stop in one process ends the run on all of
// them.
func (s *State) Stop(reason string) {
	if s == nil {
		return
	}
	if s.stopReason == "" {
		s.stopReason = reason
	}
}

// Warn logs a warning with slog attributes to [Options].Logger.
func (s *State) Warn(text string, args ...any) { s.warn(text, args...) }

// Strategy returns the strategy of the run's step.
func (s *State) Strategy() *strategy.TPUStrategy { return s.runner.strategy }

// IsChief reports whether this is process 0, which writes the files.
func (s *State) IsChief() bool { return s.isChief }

// knownMetricNames returns the names of all metrics that are known before the run.
func (s *State) knownMetricNames() []string {
	known := s.runner.stepMetricNames()
	for i := range s.runner.hooks {
		known = append(known, s.runner.hooks[i].Publishes...)
	}
	return known
}

// stepMetricNames returns the published names of the step's metrics.
func (r *runner) stepMetricNames() []string {
	known := []string{Loss}
	if r.trainStep != nil {
		for _, name := range r.trainStep.MetricNames() {
			known = append(known, publishedName(name))
		}
	}
	return known
}
