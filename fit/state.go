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

// MeanLoss is the name of the metric "loss" of train.Options.Metrics (train.MeanLoss): the mean
// over the rows of all steps since the record before.
const MeanLoss = "mean_loss"

// State is what hooks see of a run. It belongs to the run: use it within the hook's call only.
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
	began   time.Time // when the first step was taken
	warn    func(text string, args ...any)
}

// Step returns the number of steps that were taken, also before a resume.
func (s *State) Step() int64 { return s.step }

// Resumes reports whether [Options].Resume is set: whether what an earlier call of Run left in a
// hook's files is this run's own. There may be no checkpoint of it, if that was killed early.
func (s *State) Resumes() bool { return s.run.options.Resume }

// Resumed returns the step that the run resumed from, and 0 for a new run.
func (s *State) Resumed() int64 { return s.resumed }

// From returns the first step whose record is still to come. After a resume hooks that write files
// drop what they have of this step and later ones: it is written again.
func (s *State) From() int64 {
	if s.run.pending != nil {
		return s.step
	}
	return s.step + 1 // which has room: see counts
}

// Steps returns the number of steps that the run is to take in all, and 0 if it is not known.
func (s *State) Steps() int64 { return s.steps }

// Epoch returns the number of the pass over the data, from 1.
func (s *State) Epoch() int64 { return s.passes }

// Rows returns the number of rows of the batches that this call of Run took, on all replicas.
func (s *State) Rows() int64 { return s.rows }

// Elapsed returns the time since the first step of this call of Run was under way. The compilation
// is not in it.
func (s *State) Elapsed() time.Duration {
	if s.began.IsZero() {
		return 0
	}
	return time.Since(s.began)
}

// Metrics returns what was measured after this step: the loss, the other metrics of the step, and
// what hooks have set, in this order. The slice is the caller's to read, within the hook's call.
func (s *State) Metrics() []Metric { return s.metrics }

// Value returns a metric that was measured after this step.
func (s *State) Value(name string) (value float64, measured bool) {
	return find(s.metrics, name)
}

// Latest returns the value of a metric at the last record that has it, of this call of Run.
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

// Set publishes a metric of this step. It takes the place of one of the same name. Bytes of a name
// that are not UTF-8, which no file of metrics can hold, become U+FFFD.
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

// Stop ends the run after this step's hooks, without an error. The reason is in [Result].Stopped.
// The first reason counts. With several processes the run ends if any process stops it.
func (s *State) Stop(reason string) {
	if s == nil {
		return
	}
	if s.stop == "" {
		s.stop = reason
	}
}

// Warn writes a warning to [Options].Logger.
func (s *State) Warn(text string, args ...any) { s.warn(text, args...) }

// Strategy returns the strategy that the run's step is on.
func (s *State) Strategy() *strategy.TPUStrategy { return s.run.strategy }

// First reports whether this is the first of the processes, the one that writes files. It is true
// for a process alone.
func (s *State) First() bool { return s.first }

// names are the names of the metrics that are known beforehand.
func (s *State) names() []string {
	known := s.run.own()
	for i := range s.run.hooks {
		known = append(known, s.run.hooks[i].Publishes...)
	}
	return known
}

// own are the names of the step's metrics.
func (r *run) own() []string {
	known := []string{Loss}
	if r.train != nil {
		for _, name := range r.train.MetricNames() {
			known = append(known, metricName(name))
		}
	}
	return known
}
