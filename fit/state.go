package fit

import (
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Loss is the name of the metric that every record has: the loss of the step, averaged over the
// replicas.
const Loss = "loss"

// MeanLoss is the published name of train.MeanLoss, the metric "loss" of train.Options.Metrics: the
// mean over the rows of all steps since the previous record.
const MeanLoss = "mean_loss"

// State is the state of a run that hooks can access. A hook must not use it after its function
// returns.
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

// ResumeEnabled reports whether [Options].Resume is set, so that existing files of a hook belong to
// this run. There may be no checkpoint if the earlier process was killed early.
func (s *State) ResumeEnabled() bool { return s.runner.options.Resume }

// ResumedFrom returns the step from which the run resumed, or 0 for a new run.
func (s *State) ResumedFrom() int64 { return s.resumedFrom }

// NextRecordStep returns the first step whose record has not been processed yet. In a resumed run,
// hooks that write files must remove the data of this step and of later steps, because these are
// written again.
func (s *State) NextRecordStep() int64 {
	if s.runner.pendingMetrics != nil {
		return s.step
	}
	return s.step + 1 // cannot overflow: see counts
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

// SetMetric publishes a metric of this step, and replaces a metric of the same name. Bytes of the
// name that are not valid UTF-8 become U+FFFD, because the metric files only support UTF-8.
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

// mergeMetrics sets the values of newer metrics in all.
func mergeMetrics(metrics, newer []Metric) []Metric {
	for _, m := range newer {
		metrics = setMetric(metrics, m.Name, m.Value)
	}
	return metrics
}

// Stop ends the run after this step's hooks, without an error. The reason is returned in
// [Result].StopReason; further calls do not change it. With several processes a stop in one process
// ends the run on all of them.
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

// knownMetricNames returns the names of the metrics that are known before they are measured.
func (s *State) knownMetricNames() []string {
	known := s.runner.stepMetricNames()
	for i := range s.runner.hooks {
		known = append(known, s.runner.hooks[i].Publishes...)
	}
	return known
}

// stepMetricNames returns the names of the step's metrics.
func (r *runner) stepMetricNames() []string {
	known := []string{Loss}
	if r.trainStep != nil {
		for _, name := range r.trainStep.MetricNames() {
			known = append(known, publishedName(name))
		}
	}
	return known
}
