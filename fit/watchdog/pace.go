package watchdog

import (
	"time"
)

// pace is what is known of the durations of one kind of activity.
type pace struct {
	n       int64
	longest time.Duration // of late: what was long once is forgotten bit by bit
	at      time.Duration // when the last one ended
}

// What is known of a duration fades to a third in that many others and that much time, both.
const (
	fadeCount = 256
	fadeTime  = time.Minute
)

// observe adds a duration that ended now.
func (p *pace) observe(d, now time.Duration) {
	fades := min(float64(now-p.at)/float64(fadeTime), 1./fadeCount)
	p.n, p.at, p.longest = p.n+1, now, max(d, time.Duration(float64(p.longest)*(1-fades)))
}

// activityName is what has a pace: a kind of activity, or a hook.
type activityName struct {
	kind Activity
	hook string
}

// named is whose pace an activity has. There is an end to hooks' names.
func (w *Watchdog) named(f *frame) activityName {
	if f.kind == Hook && len(w.paces) < 256 {
		return activityName{Hook, f.name}
	}
	return activityName{kind: f.kind}
}

// observe learns from an activity that has ended.
func (w *Watchdog) observe(f *frame) {
	w.took[f.kind] = f.own
	name := w.named(f)
	p := w.paces[name]
	p.observe(f.own, w.mark)
	w.paces[name] = p
	switch f.kind {
	case Compile: // another program
		delete(w.paces, activityName{kind: Launch})
		delete(w.paces, activityName{kind: Result})
	case Setup: // another pass
		delete(w.paces, activityName{kind: Input})
	}
}

// bound is how long an activity may last. It is called under mu.
func (w *Watchdog) bound(f *frame) time.Duration {
	o, p := &w.opts, w.paces[w.named(f)]
	ofStep := f.kind == Input || f.kind.Together()
	known := p.n > 2 || p.n > 0 && !ofStep // the first steps after a start or a resume are slow
	switch {
	case ofStep && o.Deadline > 0:
		return o.Deadline
	case f.kind == Other || f.kind == Compile: // the caller's code, and programs of any size: nothing is known
		return o.First
	case !known, f.kind.Together() && o.Hosts > 1 && w.board == nil: // the others may save: nothing says what they do
		return o.First
	case f.kind == Hook: // which may do something else now and then
		return max(12*o.Floor, factor*p.longest)
	}
	return max(o.Floor, factor*p.longest)
}

// stand is how long all hosts may wait at the same place, by the bound of what they do.
func (o *Options) stand(bound time.Duration, missing bool) time.Duration {
	if o.Deadline == 0 && bound != o.First {
		bound = max(6*o.Floor, bound*5/2)
	}
	if missing { // of which nothing is known
		return max(bound, o.First)
	}
	return bound
}
