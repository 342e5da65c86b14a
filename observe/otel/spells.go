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

// spells are what a run does now, and has done since the last record.
type spells struct {
	now  spell
	took [activities]time.Duration
	// before are the spells before the run began, such as a restore, which have no parent yet.
	before []spell
}

// spell is the time that a run spent on something.
type spell struct {
	what       watchdog.Activity
	name       string
	begin, end time.Time
}

// first is when the run began to do anything.
func (s *spells) first() time.Time {
	switch {
	case len(s.before) > 0:
		return s.before[0].begin
	case !s.now.begin.IsZero():
		return s.now.begin
	}
	return time.Now()
}

// turn ends the spell under way and begins the next.
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

// did makes spans of spells that are worth one.
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

// result says how a run ended: done, interrupted, stuck or failed.
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
