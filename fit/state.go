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
	run     *run
	first   bool
	step    int64
	resumed int64
	steps   int64
	passes  int64
	rows    int64
	metrics []Metric
	latest  []Metric
	stop    string
	began   time.Time // launch of the first step
	warn    func(text string, args ...any)
}

// Step returns the number of completed steps of the whole run, including the steps before a resume.
func (s *State) Step() int64 { return s.step }

// Resumes reports whether [Options].Resume is set, so that existing files of a hook belong to this
// run. There may be no checkpoint if the earlier process was killed early.
func (s *State) Resumes() bool { return s.run.options.Resume }

// Resumed returns the step from which the run resumed, or 0 for a new run.
func (s *State) Resumed() int64 { return s.resumed }

// From returns the first step whose record has not been processed yet. In a resumed run, hooks that
// write files must remove the data of this step and of later steps, because these are written
// again.
func (s *State) From() int64 {
	if s.run.pending != nil {
		return s.step
	}
	return s.step + 1 // cannot overflow: see counts
}

// Steps returns the total number of steps of the run, or 0 if it is not known.
func (s *State) Steps() int64 { return s.steps }

// Epoch returns the number of the current pass over the data, from 1.
func (s *State) Epoch() int64 { return s.passes }

// Rows returns the number of rows of the batches of this call of Run, over all replicas.
func (s *State) Rows() int64 { return s.rows }

// Elapsed returns the time since the first step of this call of Run was launched. It does not
// include the compilation.
func (s *State) Elapsed() time.Duration {
	if s.began.IsZero() {
		return 0
	}
	return time.Since(s.began)
}

// Metrics returns the metrics of this step: the loss, the other metrics of the step, and the
// metrics that hooks have set, in this order. The caller must not modify the slice or keep it after
// the hook returns.
func (s *State) Metrics() []Metric { return s.metrics }

// Value returns a metric of this step and reports whether it was measured.
func (s *State) Value(name string) (value float64, measured bool) {
	return find(s.metrics, name)
}

// Latest returns the last value of a metric in this call of Run and reports whether there is one.
func (s *State) Latest(name string) (value float64, measured bool) {
	return find(s.latest, name)
}

func find(all []Metric, name string) (float64, bool) {
	i := slices.IndexFunc(all, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return 0, false
	}
	return all[i].Value, true
}

// Set publishes a metric of this step, and replaces a metric of the same name. Bytes of the name
// that are not valid UTF-8 become U+FFFD, because the metric files only support UTF-8.
func (s *State) Set(name string, value float64) {
	s.metrics = set(s.metrics, strings.ToValidUTF8(name, "\ufffd"), value)
}

func set(all []Metric, name string, value float64) []Metric {
	if i := slices.IndexFunc(all, func(m Metric) bool { return m.Name == name }); i >= 0 {
		all[i].Value = value
		return all
	}
	return append(all, Metric{name, value})
}

// merge sets the values of newer metrics in all.
func merge(all, newer []Metric) []Metric {
	for _, m := range newer {
		all = set(all, m.Name, m.Value)
	}
	return all
}

// Stop ends the run after this step's hooks, without an error. The reason is returned in
// [Result].Stopped; further calls do not change it. With several processes a stop in one process
// ends the run on all of them.
func (s *State) Stop(reason string) {
	if s == nil {
		return
	}
	if s.stop == "" {
		s.stop = reason
	}
}

// Warn logs a warning with slog attributes to [Options].Logger.
func (s *State) Warn(text string, args ...any) { s.warn(text, args...) }

// Strategy returns the strategy of the run's step.
func (s *State) Strategy() *strategy.TPUStrategy { return s.run.strategy }

// First reports whether this is process 0, which writes the files.
func (s *State) First() bool { return s.first }

// names returns the names of the metrics that are known before they are measured.
func (s *State) names() []string {
	known := s.run.own()
	for i := range s.run.hooks {
		known = append(known, s.run.hooks[i].Publishes...)
	}
	return known
}

// own returns the names of the step's metrics.
func (r *run) own() []string {
	known := []string{Loss}
	if r.train != nil {
		for _, name := range r.train.MetricNames() {
			known = append(known, metricName(name))
		}
	}
	return known
}
