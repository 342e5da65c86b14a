package status

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Sight is a host as a reader sees it.
type Sight struct {
	Record Record
	// Missing says that a host of the run has no record yet.
	Missing bool
	// Changed says that the record changed while it was watched, so that the host was alive then.
	Changed bool
	// Silent is the time since the record changed last, or since it was seen first.
	Silent time.Duration
	// Limit is the time after which a silent host is not alive.
	Limit time.Duration
	// Process says what became of the process, where the reader is on its machine: "is stopped" or
	// "has ended"; empty if it runs or cannot be known.
	Process string
	// Skew is how far the host's clock is ahead of the reader's.
	Skew time.Duration
}

// Alive reports whether the host has given a sign of life lately.
func (s *Sight) Alive() bool { return !s.Missing && s.Process == "" && s.Silent <= s.Limit }

// minSilence is the least time after which a silent host is not alive.
const minSilence = 5 * time.Second

// maxSilence is the most that the time between a host's records makes of it.
const maxSilence = 30 * time.Second

// View follows the records of hosts. Use it from one goroutine.
type View struct {
	// MinSilence is the least time after which a silent host is not alive; 0 is 5 seconds.
	MinSilence time.Duration

	hosts map[int]*followed
	run   string
	count int
	since time.Time // that the view is of this run
}

// followed is a host that is followed.
type followed struct {
	record  Record
	at      time.Time // when it changed, by the reader's clock
	changed bool
	gap     time.Duration // the longest between two changes
	skew    time.Duration
}

// NewView returns a view that has seen nothing.
func NewView() *View { return &View{hosts: map[int]*followed{}} }

// Run returns the run that the view is of, and the number of its hosts.
func (v *View) Run() (run string, hosts int) { return v.run, v.count }

// Follow makes the view one of a run of so many hosts: records of other runs do not count, and
// hosts without a record are missing.
func (v *View) Follow(run string, hosts int, now time.Time) {
	if v.run != run || v.count != hosts {
		v.hosts, v.since = map[int]*followed{}, now
	}
	v.run, v.count = run, hosts
}

// Newest makes the view one of the run whose records were written last, by the hosts' clocks, if
// there are any. Of one whose records change, the view stays.
func (v *View) Newest(all []Record, now time.Time) {
	for _, h := range v.hosts {
		if h.changed && now.Sub(h.at) < maxSilence {
			fresh := slices.ContainsFunc(all, func(r Record) bool { return r.Run == v.run })
			if fresh {
				return
			}
		}
	}
	if len(all) == 0 {
		return
	}
	newest := slices.MaxFunc(all, func(a, b Record) int { return a.Time.Compare(b.Time) })
	v.Follow(newest.Run, newest.Hosts, now)
}

// See takes the records that were read at a time. Wall is the reader's clock, which the hosts' are
// compared with.
func (v *View) See(all []Record, now, wall time.Time) {
	for _, r := range all {
		if r.Run != v.run || r.Host >= v.count {
			continue
		}
		h := v.hosts[r.Host]
		switch {
		case h == nil:
			v.hosts[r.Host] = &followed{record: r, at: now, skew: r.Time.Sub(wall.Round(0))}
		case h.record.Sequence != r.Sequence || h.record.PID != r.PID:
			if h.changed {
				h.gap = max(h.gap, min(now.Sub(h.at), maxSilence))
			}
			h.record, h.at, h.changed, h.skew = r, now, true, r.Time.Sub(wall.Round(0))
		}
	}
}

// Excuse forgives the hosts' silence for a time in which the reader itself was stopped, or could
// not read.
func (v *View) Excuse(d time.Duration, now time.Time) {
	for _, h := range v.hosts {
		if h.at = h.at.Add(d); h.at.After(now) {
			h.at = now
		}
	}
}

// Sights returns the hosts of the run, in their order.
func (v *View) Sights(now time.Time) []Sight {
	all := make([]Sight, v.count)
	for i := range all {
		all[i] = Sight{Missing: true, Silent: now.Sub(v.since), Limit: cmp.Or(v.MinSilence, minSilence), Record: Record{Host: i, Hosts: v.count, Run: v.run}}
	}
	for _, i := range slices.Sorted(maps.Keys(v.hosts)) {
		h := v.hosts[i]
		limit := max(cmp.Or(v.MinSilence, minSilence), min(h.gap*5/2, maxSilence))
		all[i] = Sight{Record: h.record, Changed: h.changed, Silent: max(now.Sub(h.at), 0), Limit: limit, Skew: h.skew}
		if h.record.State != Ended && all[i].Silent > limit/2 {
			all[i].Process = processState(&h.record)
		}
	}
	return all
}
