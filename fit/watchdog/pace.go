package watchdog

import (
	"time"
)

// pace contains the observed durations of one kind of activity.
type pace struct {
	n       int64
	longest time.Duration // longest recent duration; it decays with time
	at      time.Duration // end of the last activity
}

// The longest duration decays to a third after fadeCount further activities or fadeTime, whichever
// is later.
const (
	fadeCount = 256
	fadeTime  = time.Minute
)

// observe adds a duration that ended at now.
func (p *pace) observe(d, now time.Duration) {
	fades := min(float64(now-p.at)/float64(fadeTime), 1./fadeCount)
	p.n, p.at, p.longest = p.n+1, now, max(d, time.Duration(float64(p.longest)*(1-fades)))
}

// activityName is the key of a pace: a kind of activity, or a hook.
type activityName struct {
	kind Activity
	hook string
}

// named returns the key of an activity's pace. The number of hook names is limited.
func (w *Watchdog) named(f *frame) activityName {
	if f.kind == Hook && len(w.paces) < 256 {
		return activityName{Hook, f.name}
	}
	return activityName{kind: f.kind}
}

// observe updates the paces with an activity that has ended.
func (w *Watchdog) observe(f *frame) {
	w.took[f.kind] = f.own
	name := w.named(f)
	p := w.paces[name]
	p.observe(f.own, w.mark)
	w.paces[name] = p
	switch f.kind {
	case Compile: // the next steps belong to a new program
		delete(w.paces, activityName{kind: Launch})
		delete(w.paces, activityName{kind: Result})
	case Setup: // a new pass over the data begins
		delete(w.paces, activityName{kind: Input})
	}
}

// bound returns the timeout of an activity. The caller must hold mu.
func (w *Watchdog) bound(f *frame) time.Duration {
	o, p := &w.opts, w.paces[w.named(f)]
	ofStep := f.kind == Input || f.kind.WaitsForHosts()
	known := p.n > 2 || p.n > 0 && !ofStep // the first steps after a start or a resume are slow
	switch {
	case ofStep && o.Deadline > 0:
		return o.Deadline
	case f.kind == Other || f.kind == Compile: // the caller's code, and programs of any size
		return o.First
	case !known, f.kind.WaitsForHosts() && o.Hosts > 1 && w.board == nil: // the other hosts are not known
		return o.First
	case f.kind == Hook: // a hook may do different work at some steps
		return max(12*o.MinTimeout, factor*p.longest)
	}
	return max(o.MinTimeout, factor*p.longest)
}

// stand returns how long all hosts may wait at the same place, derived from the timeout of the
// activity.
func (o *Options) stand(bound time.Duration, missing bool) time.Duration {
	if o.Deadline == 0 && bound != o.First {
		bound = max(6*o.MinTimeout, bound*5/2)
	}
	if missing { // nothing is known about the missing hosts
		return max(bound, o.First)
	}
	return bound
}
