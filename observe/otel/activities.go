package otel

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

const numActivities = int(watchdog.Setup) + 1

// activityLog contains the current activity of a run, and the total time of each kind of activity
// since the last step at which the hooks were called.
type activityLog struct {
	current   activityPeriod
	durations [numActivities]time.Duration
	// beforeRun contains the activities before the run began, such as a restore, whose parent span
	// does not exist yet.
	beforeRun []activityPeriod
}

type activityPeriod struct {
	activity   watchdog.Activity
	name       string
	begin, end time.Time
}

func (s *activityLog) firstStart() time.Time {
	switch {
	case len(s.beforeRun) > 0:
		return s.beforeRun[0].begin
	case !s.current.begin.IsZero():
		return s.current.begin
	}
	return time.Now()
}

func (o *Observer) startActivity(activity watchdog.Activity, name string) {
	now, previous := time.Now(), o.activities.current
	o.activities.current = activityPeriod{activity: activity, name: name, begin: now}
	if previous.begin.IsZero() {
		return
	}
	previous.end = now
	if i := int(previous.activity); i < numActivities {
		o.activities.durations[i] += now.Sub(previous.begin)
	}
	if o.run == nil {
		o.activities.beforeRun = append(o.activities.beforeRun, previous)
		return
	}
	o.emitSpans(previous)
}

// emitSpans creates spans for saves, restores and activities that last at least
// Options.MinSpanDuration.
func (o *Observer) emitSpans(periods ...activityPeriod) {
	for _, s := range periods {
		always := s.activity == watchdog.Save || s.activity == watchdog.Restore
		if s.activity == watchdog.Other || !always && s.end.Sub(s.begin) < o.opts.MinSpanDuration {
			continue
		}
		attrs := o.attributes(o.opts.Process)
		if s.name != "" {
			attrs = append(attrs, attribute.String("tpustrategy.name", s.name))
		}
		_, span := o.tracer.Start(o.run.ctx, s.activity.String(), trace.WithTimestamp(s.begin),
			trace.WithAttributes(attrs...))
		span.End(trace.WithTimestamp(s.end))
	}
}

func runOutcome(err error) string {
	var interrupted *interrupt.Error
	var stuck *watchdog.StuckError
	switch {
	case errors.As(err, &stuck):
		return "stuck"
	case errors.As(err, &interrupted):
		return "interrupted"
	case err != nil:
		return "failed"
	}
	return "done"
}
