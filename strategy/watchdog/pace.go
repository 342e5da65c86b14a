package watchdog

import (
	"time"

	"github.com/tpustrategy/tpustrategy/internal/activity"
)

// pace is what is known of the durations of one kind of activity: the longest of late, in two
// buckets that take turns, so that what was long once is forgotten.
type pace struct {
	n               int64
	longest, before time.Duration // of the bucket under way, and of the one before
	since           int64         // n when the bucket under way began
	began           time.Duration // when that was
}

// The size of a bucket: that many durations and that much time, both.
const (
	bucketCount = 256
	bucketTime  = time.Minute
)

// factor is how many times as long as its longest time of late an activity may last.
const factor = 4

// observe adds a duration that ended now.
func (p *pace) observe(d, now time.Duration) {
	p.n++
	p.longest = max(p.longest, d)
	if p.n-p.since >= bucketCount && now-p.began >= bucketTime {
		*p = pace{n: p.n, before: p.longest, since: p.n, began: now}
	}
}

// usual is the longest time of late, known once there are enough of them: the first steps after a
// start or a resume are slow.
func (p *pace) usual(k activity.Kind) (longest time.Duration, known bool) {
	enough := int64(1)
	if k == activity.Input || k.Together() {
		enough = 3
	}
	return max(p.longest, p.before), p.n >= enough
}

// bound is how long an activity may last. It is called under mu.
func (w *Watchdog) bound(f *frame) time.Duration {
	o := &w.opts
	if o.Deadline > 0 && (f.kind == activity.Input || f.kind.Together()) {
		return o.Deadline
	}
	usual, known := w.pace(f).usual(f.kind)
	switch {
	case f.kind == activity.Other || f.kind == activity.Compile: // the caller's code, and programs of any size: nothing is known
		return o.First
	case !known, f.kind.Together() && o.Hosts > 1 && w.board == nil: // the others may save: nothing says what they do
		return o.First
	case f.kind == activity.Hook: // which may do something else now and then
		return max(12*o.Floor, factor*usual)
	}
	return max(o.Floor, factor*usual)
}

// stand is how long all hosts may wait at the same place.
func (o *Options) stand(bound time.Duration) time.Duration {
	if o.Deadline > 0 || bound == o.First {
		return bound
	}
	return max(6*o.Floor, bound*5/2)
}
