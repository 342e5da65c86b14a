package watchdog

import (
	"time"
)

type durationStats struct {
	count   int64
	longest time.Duration // longest recent duration; it decays with time
	lastEnd time.Duration // end of the last activity
}

// The longest duration decays to a third after decayCount further activities or decayTime,
// whichever is later.
const (
	decayCount = 256
	decayTime  = time.Minute
)

// add adds the duration of an activity that ended at the time now. Older durations lose weight.
func (p *durationStats) add(duration, now time.Duration) {
	fades := min(float64(now-p.lastEnd)/float64(decayTime), 1./decayCount)
	p.count, p.lastEnd, p.longest = p.count+1, now, max(duration, time.Duration(float64(p.longest)*(1-fades)))
}

// activityKey is the key of the durations of an activity: its kind and, for a hook, its name.
type activityKey struct {
	kind Activity
	hook string
}

// activityKey returns the key for the durations of an activity. To limit the memory, hooks share
// one key when there are too many names.
func (w *Watchdog) activityKey(f *activityFrame) activityKey {
	if f.kind == Hook && len(w.stats) < 256 {
		return activityKey{Hook, f.name}
	}
	return activityKey{kind: f.kind}
}

// recordDuration adds the duration of an activity that has ended.
func (w *Watchdog) recordDuration(f *activityFrame) {
	w.lastTimes[f.kind] = f.duration
	name := w.activityKey(f)
	p := w.stats[name]
	p.add(f.duration, w.countedUntil)
	w.stats[name] = p
	switch f.kind {
	case Compile: // the next steps belong to a new program
		delete(w.stats, activityKey{kind: Launch})
		delete(w.stats, activityKey{kind: Result})
	case Setup: // a new pass over the data begins
		delete(w.stats, activityKey{kind: Input})
	}
}

// timeout returns how long an activity may last before the watchdog suspects a problem. The caller
// must hold mu.
func (w *Watchdog) timeout(f *activityFrame) time.Duration {
	o, p := &w.opts, w.stats[w.activityKey(f)]
	ofStep := f.kind == Input || f.kind.WaitsForHosts()
	known := p.count > 2 || p.count > 0 && !ofStep // the first steps after a start or a resume are slow
	switch {
	case ofStep && o.StepTimeout > 0:
		return o.StepTimeout
	case f.kind == Other || f.kind == Compile: // the caller's code, and programs of any size
		return o.FirstTimeout
	case !known, f.kind.WaitsForHosts() && o.Hosts > 1 && w.records == nil: // the other hosts are not known
		return o.FirstTimeout
	case f.kind == Hook: // a hook may do different work at some steps
		return max(12*o.MinTimeout, timeoutFactor*p.longest)
	}
	return max(o.MinTimeout, timeoutFactor*p.longest)
}

// standstillTimeout returns how long all hosts may wait in the same operation. timeout is the
// timeout of that operation on this host. missing means that some hosts have not written a record
// yet.
func (o *Options) standstillTimeout(timeout time.Duration, missing bool) time.Duration {
	if o.StepTimeout == 0 && timeout != o.FirstTimeout {
		timeout = max(6*o.MinTimeout, timeout*5/2)
	}
	if missing { // nothing is known about the missing hosts
		return max(timeout, o.FirstTimeout)
	}
	return timeout
}
