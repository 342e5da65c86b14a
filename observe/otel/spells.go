package otel

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// activities is the number of kinds of activities.
const activities = int(watchdog.Setup) + 1

// spells contains the current activity of a run, and the time of each activity since the last
// record.
type spells struct {
	now  spell
	took [activities]time.Duration
	// before contains the activities before the run began, such as a restore, whose parent span
	// does not exist yet.
	before []spell
}

// spell is a period of one activity.
type spell struct {
	what       watchdog.Activity
	name       string
	begin, end time.Time
}

// first returns the start time of the first activity.
func (s *spells) first() time.Time {
	switch {
	case len(s.before) > 0:
		return s.before[0].begin
	case !s.now.begin.IsZero():
		return s.now.begin
	}
	return time.Now()
}

// turn ends the current activity and starts the next.
func (o *Observer) turn(what watchdog.Activity, name string) {
	now, last := time.Now(), o.spells.now
	o.spells.now = spell{what: what, name: name, begin: now}
	if last.begin.IsZero() {
		return
	}
	last.end = now
	if i := int(last.what); i < activities {
		o.spells.took[i] += now.Sub(last.begin)
	}
	if o.run == nil {
		o.spells.before = append(o.spells.before, last)
		return
	}
	o.did(last)
}

// did creates spans for saves, restores and activities that last at least Options.Shortest.
func (o *Observer) did(all ...spell) {
	for _, s := range all {
		always := s.what == watchdog.Save || s.what == watchdog.Restore
		if s.what == watchdog.Other || !always && s.end.Sub(s.begin) < o.opts.Shortest {
			continue
		}
		attrs := o.attributes(o.opts.Process)
		if s.name != "" {
			attrs = append(attrs, attribute.String("tpustrategy.name", s.name))
		}
		_, span := o.tracer.Start(o.run.inside, s.what.String(), trace.WithTimestamp(s.begin), trace.WithAttributes(attrs...))
		span.End(trace.WithTimestamp(s.end))
	}
}

// result returns the outcome of a run: done, interrupted, stuck or failed.
func result(err error) string {
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
