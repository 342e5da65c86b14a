package prom

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/report/phase"
)

// Options configures a set of metrics. The zero value selects the defaults.
type Options struct {
	// Labels are added to all metrics, in addition to process. Use them to distinguish several runs
	// of one process.
	Labels prometheus.Labels
	// Process is the number of this process for events before a run. During a run, the number of
	// the run is used.
	Process int
	// Now returns the time; nil is time.Now.
	Now func() time.Time
}

// Metrics is the set of metrics of the runs of a process. It is safe for concurrent use. Concurrent
// runs need separate Metrics with different Labels.
type Metrics struct {
	opts                           Options
	step, stepSeconds, running     *prometheus.GaugeVec
	metricValue                    *prometheus.GaugeVec
	steps, rows, runs, programs    *prometheus.CounterVec
	activitySeconds, activityCount *prometheus.CounterVec
	stageSeconds                   *prometheus.HistogramVec

	mu      sync.Mutex
	stages  map[string]currentStage // by program
	run     progress
	inRun   bool
	current currentActivity
	process string // of the last run, or Options.Process
}

type currentActivity struct {
	activity watchdog.Activity
	start    time.Time
}

func (m *Metrics) startActivity(activity watchdog.Activity, process string) {
	now := m.opts.Now()
	if previous := m.current; !previous.start.IsZero() && previous.activity != watchdog.Other {
		m.activitySeconds.WithLabelValues(previous.activity.String(), process).Add(max(0, now.Sub(previous.start).Seconds()))
		m.activityCount.WithLabelValues(previous.activity.String(), process).Inc()
	}
	m.current = currentActivity{activity, now}
}

type currentStage struct {
	name  string
	start time.Time
}

// progress is the position of a run at the last step at which the hooks were called.
type progress struct {
	step, rows int64
	at         time.Time
}

// New creates the metrics and registers them. If one of them cannot be registered, for example
// because it is already registered, New unregisters the others and returns the error.
func New(registerer prometheus.Registerer, opts Options) (*Metrics, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	m := &Metrics{opts: opts, stages: map[string]currentStage{}, process: strconv.Itoa(opts.Process)}
	var all []prometheus.Collector
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tpustrategy", Name: name, Help: help,
			ConstLabels: opts.Labels}, append(labels, "process"))
		all = append(all, v)
		return v
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tpustrategy", Name: name, Help: help,
			ConstLabels: opts.Labels}, append(labels, "process"))
		all = append(all, v)
		return v
	}
	m.step = gauge("step", "Number of steps of the training, including steps before a resume.")
	m.steps = counter("steps_total", "Number of steps that the runs of this process executed.")
	m.rows = counter("rows_total", "Number of rows of the batches, on all replicas.")
	m.stepSeconds = gauge("step_seconds", "Mean duration of a step between the last two records, in seconds.")
	m.metricValue = gauge("metric", "Last value of a metric of the run.", "name")
	m.running = gauge("running", "1 during a run, otherwise 0.")
	m.runs = counter("runs_total", "Number of finished runs.", "result")
	m.activitySeconds = counter("activity_seconds_total", "Time that runs spent on an activity, in seconds.", "activity")
	m.activityCount = counter("activities_total", "Number of times that runs started an activity.", "activity")
	m.programs = counter("programs_total", "Number of compiled programs.", "result")
	m.stageSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tpustrategy", Name: "making_seconds",
		ConstLabels: opts.Labels,
		Help:        "Duration of a stage of the compilation of a program, in seconds.",
		Buckets: prometheus.ExponentialBuckets(0.01, 4,
			8)}, []string{"stage", "process"})
	all = append(all, m.stageSeconds)
	for i, c := range all {
		if err := registerer.Register(c); err != nil {
			for _, registered := range all[:i] {
				registerer.Unregister(registered)
			}
			return nil, err
		}
	}
	return m, nil
}

// Phase observes the duration of each stage of building a program. Pass it as
// strategy.Options.Phases.
func (m *Metrics) Phase(p phase.Phase) {
	m.mu.Lock()
	defer m.mu.Unlock()
	process, now := strconv.Itoa(m.opts.Process), m.opts.Now()
	if previous, ok := m.stages[p.Name]; ok {
		m.stageSeconds.WithLabelValues(previous.name, process).Observe(now.Sub(previous.start).Seconds())
	}
	if p.Stage != phase.Done {
		m.stages[p.Name] = currentStage{p.Stage.String(), now}
		return
	}
	delete(m.stages, p.Name)
	result := "done"
	if p.Err != nil {
		result = "failed"
	}
	m.programs.WithLabelValues(result, process).Inc()
}

// Hook returns a hook that updates the metrics of a run. Pass it to fit.Run. It never stops a run.
func (m *Metrics) Hook() fit.Hook {
	return fit.Hook{
		Name: "prometheus",
		OnActivity: func(activity watchdog.Activity, _ string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.startActivity(activity, m.process)
		},
		Begin: func(_ context.Context, s *fit.State) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			process := strconv.Itoa(s.Strategy().Process())
			m.process = process
			m.run, m.inRun = progress{step: s.Step(), rows: s.Rows()}, true
			m.step.WithLabelValues(process).Set(float64(s.Step()))
			m.running.WithLabelValues(process).Set(1)
			return nil
		},
		Record: func(_ context.Context, s *fit.State) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.record(s)
			return nil
		},
		End: func(_ context.Context, s *fit.State, err error) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !m.inRun { // Begin of an earlier hook failed
				return nil
			}
			m.inRun = false
			process, result := strconv.Itoa(s.Strategy().Process()), "done"
			var stuck *watchdog.StuckError
			var interrupted *interrupt.Error
			switch {
			case errors.As(err, &stuck):
				result = "stuck"
			case errors.As(err, &interrupted):
				result = "interrupted"
			case err != nil:
				result = "failed"
			}
			m.startActivity(watchdog.Other, process)
			m.current = currentActivity{}
			m.running.WithLabelValues(process).Set(0)
			m.runs.WithLabelValues(result, process).Inc()
			return nil
		},
	}
}

func (m *Metrics) record(s *fit.State) {
	process, now := strconv.Itoa(s.Strategy().Process()), m.opts.Now()
	previous := m.run
	m.run = progress{s.Step(), s.Rows(), now}
	m.step.WithLabelValues(process).Set(float64(s.Step()))
	m.steps.WithLabelValues(process).Add(float64(max(0, s.Step()-previous.step)))
	m.rows.WithLabelValues(process).Add(float64(max(0, s.Rows()-previous.rows)))
	if taken := s.Step() - previous.step; taken > 0 && !previous.at.IsZero() { // the first record includes compilation
		m.stepSeconds.WithLabelValues(process).Set(now.Sub(previous.at).Seconds() / float64(taken))
	}
	for _, metric := range s.Metrics() {
		m.metricValue.WithLabelValues(metric.Name, process).Set(metric.Value)
	}
}
