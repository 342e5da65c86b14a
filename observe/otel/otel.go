package otel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/report/phase"
)

// scopeName is the name of the instrumentation library.
const scopeName = "github.com/tpustrategy/tpustrategy/observe/otel"

// Options configures an Observer. The zero value uses the global providers.
type Options struct {
	// TracerProvider and MeterProvider create spans and metrics; nil selects the global providers
	// of OpenTelemetry.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Parent contains the parent span of the stages of programs; nil is context.Background().
	Parent context.Context
	// Attributes are added to all spans and metrics.
	Attributes []attribute.KeyValue
	// Process is the number of this process for events before a run. During a run, the number of
	// the run is used.
	Process int
	// MinSpanDuration is the minimum duration of an activity with its own span, such as a wait for
	// input, a launch, or a wait for a result; 0 is 10 milliseconds. Saves and restores always have
	// a span.
	MinSpanDuration time.Duration
}

// Observer creates the spans and metrics of the runs of a process. It is safe for concurrent use.
// Concurrent runs need separate Observers.
type Observer struct {
	opts        Options
	tracer      trace.Tracer
	steps, rows metric.Int64Counter
	step        metric.Int64Gauge
	duration    metric.Float64Histogram
	metricValue metric.Float64Gauge

	mu         sync.Mutex
	stageSpans map[string]trace.Span // by program
	run        *runState             // nil outside of a run
	activities activityLog
}

type runState struct {
	ctx   context.Context // of the run's span
	span  trace.Span
	steps trace.Span // span of the steps since the last record
	step  int64
	rows  int64
	at    time.Time // of the last record; zero before the first
	attrs metric.MeasurementOption
}

// New returns an Observer. It fails if the meter cannot create the instruments.
func New(opts Options) (*Observer, error) {
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	if opts.MeterProvider == nil {
		opts.MeterProvider = otel.GetMeterProvider()
	}
	if opts.MinSpanDuration == 0 {
		opts.MinSpanDuration = 10 * time.Millisecond
	}
	if opts.Parent == nil {
		opts.Parent = context.Background()
	}
	o := &Observer{opts: opts, tracer: opts.TracerProvider.Tracer(scopeName), stageSpans: map[string]trace.Span{}}
	meter := opts.MeterProvider.Meter(scopeName)
	var err error
	addError := func(e error) { err = errors.Join(err, e) }
	var e error
	o.steps, e = meter.Int64Counter("tpustrategy.steps",
		metric.WithDescription("Number of steps that the runs of this process executed."))
	addError(e)
	o.rows, e = meter.Int64Counter("tpustrategy.rows",
		metric.WithDescription("Number of rows of the batches, on all replicas."))
	addError(e)
	o.step, e = meter.Int64Gauge("tpustrategy.step",
		metric.WithDescription("Number of steps of the training, including steps before a resume."))
	addError(e)
	o.duration, e = meter.Float64Histogram("tpustrategy.step.duration", metric.WithUnit("s"),
		metric.WithDescription("Mean duration of a step between two records."))
	addError(e)
	o.metricValue, e = meter.Float64Gauge("tpustrategy.metric", metric.WithDescription("Value of a metric of the run."))
	addError(e)
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (o *Observer) attributes(process int) []attribute.KeyValue {
	return append([]attribute.KeyValue{attribute.Int("tpustrategy.process", process)}, o.opts.Attributes...)
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Phase creates a span for each stage of building a program. Pass it as strategy.Options.Phases.
func (o *Observer) Phase(p phase.Phase) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before := o.stageSpans[p.Name]; before != nil {
		endSpan(before, p.Err)
		delete(o.stageSpans, p.Name)
	}
	if p.Stage == phase.Done {
		return
	}
	attrs := append(o.attributes(o.opts.Process), attribute.String("tpustrategy.program", p.Name),
		attribute.String("tpustrategy.target", p.Target),
		attribute.Int("tpustrategy.replicas", p.Replicas), attribute.Int("tpustrategy.logical_devices", p.LogicalDevices))
	if p.TextBytes > 0 {
		attrs = append(attrs, attribute.Int("tpustrategy.text_bytes", p.TextBytes))
	}
	_, o.stageSpans[p.Name] = o.tracer.Start(o.opts.Parent, p.Stage.String(), trace.WithAttributes(attrs...))
}

// Hook returns a hook that creates the spans and updates the metrics of a run. Pass it to fit.Run.
// The hook never stops a run.
func (o *Observer) Hook() fit.Hook {
	return fit.Hook{
		Name: "opentelemetry",
		OnActivity: func(activity watchdog.Activity, name string) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.startActivity(activity, name)
		},
		Begin: func(ctx context.Context, s *fit.State) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			attrs := o.attributes(s.Strategy().Process())
			r := &runState{step: s.Step(), rows: s.Rows(), attrs: metric.WithAttributeSet(attribute.NewSet(attrs...))}
			r.ctx, r.span = o.tracer.Start(ctx, "train", trace.WithTimestamp(o.activities.firstStart()),
				trace.WithAttributes(append(attrs,
					attribute.Int64("tpustrategy.first_step", s.Step()+1), attribute.Int64("tpustrategy.resumed",
						s.ResumedFrom()))...))
			_, r.steps = o.tracer.Start(r.ctx, "steps", trace.WithAttributes(attrs...))
			o.run = r
			o.emitSpans(o.activities.beforeRun...)
			o.activities.beforeRun = nil
			return nil
		},
		Record: func(_ context.Context, s *fit.State) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.run != nil {
				o.recordSteps(s)
			}
			return nil
		},
		End: func(_ context.Context, s *fit.State, err error) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.run == nil { // Begin of an earlier hook failed
				return nil
			}
			o.startActivity(watchdog.Other, "")
			o.run.steps.End()
			o.run.span.SetAttributes(attribute.Int64("tpustrategy.last_step", s.Step()),
				attribute.String("tpustrategy.result", runOutcome(err)))
			endSpan(o.run.span, err)
			o.run, o.activities = nil, activityLog{}
			return nil
		},
	}
}

// recordSteps records the metrics of the steps since the previous call, ends the span of these
// steps, and starts the next span.
func (o *Observer) recordSteps(s *fit.State) {
	r, now := o.run, time.Now()
	taken := s.Step() - r.step
	r.steps.SetAttributes(attribute.Int64("tpustrategy.first_step", r.step+1),
		attribute.Int64("tpustrategy.last_step", s.Step()))
	o.steps.Add(r.ctx, max(0, taken), r.attrs)
	o.rows.Add(r.ctx, max(0, s.Rows()-r.rows), r.attrs)
	o.step.Record(r.ctx, s.Step(), r.attrs)
	if taken > 0 && !r.at.IsZero() { // the time before the first record includes compilation
		o.duration.Record(r.ctx, now.Sub(r.at).Seconds()/float64(taken), r.attrs)
	}
	for _, m := range s.Metrics() {
		r.steps.SetAttributes(attribute.Float64("tpustrategy.metric."+m.Name, m.Value))
		o.metricValue.Record(r.ctx, m.Value, r.attrs, metric.WithAttributes(attribute.String("name", m.Name)))
	}
	for activity, duration := range o.activities.durations {
		if duration > 0 {
			r.steps.SetAttributes(attribute.Float64("tpustrategy.seconds."+watchdog.Activity(activity).String(),
				duration.Seconds()))
		}
	}
	o.activities.durations = [numActivities]time.Duration{}
	r.steps.End()
	r.step, r.rows, r.at = s.Step(), s.Rows(), now
	_, r.steps = o.tracer.Start(r.ctx, "steps", trace.WithAttributes(o.attributes(s.Strategy().Process())...))
}
