package watchdog

import "time"

// pace is what is known of the durations of one kind of activity: the longest of late, in two
// buckets that take turns, so that what was long once is forgotten.
type pace struct {
	n             int64
	longest, last time.Duration // longest of the bucket under way
	before        time.Duration // longest of the bucket before
	inBucket      int
	began         time.Duration // when the bucket under way began
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
	p.last = d
	if d > p.longest {
		p.longest = d
	}
	if p.inBucket++; p.inBucket >= bucketCount && now-p.began >= bucketTime {
		p.before, p.longest, p.inBucket, p.began = p.longest, 0, 0, now
	}
}

// forget says that what comes is not like what was.
func (p *pace) forget() { *p = pace{} }

// usual is the longest time of late, once there are enough of them.
func (p *pace) usual(enough int64) (longest time.Duration, known bool) {
	if p.n < enough {
		return 0, false
	}
	return max(p.longest, p.before), true
}
