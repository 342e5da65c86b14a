package status

import (
	"cmp"
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
	// Silent is the time since the record changed last, or since it was seen first, and Limit that
	// after which a silent host is not alive.
	Silent, Limit time.Duration
	// Process says what became of the process, where the reader is on its machine: "is stopped" or
	// "has ended"; empty if it runs or cannot be known.
	Process string
	// Skew is how far the host's clock is ahead of the reader's.
	Skew time.Duration

	// Here says that the host is the reader, whose Record is the newest of all.
	Here bool
	// Stand is how long the reader lets all hosts wait at the same place; 0 is for ever.
	Stand time.Duration
	// Lost says why the reader does not reach the place of the records; empty if it does.
	Lost string
}

// Alive reports whether the host has given a sign of life lately.
func (s *Sight) Alive() bool { return !s.Missing && s.Process == "" && s.Silent <= s.Limit }

// running reports whether the host is alive and has not left the loop.
func (s *Sight) running() bool { return (s.Here || s.Alive()) && s.Record.State != Ended }

// waits reports whether the host is where others have to come.
func (s *Sight) waits() bool {
	return !s.Missing && s.Record.State != Ended && s.Record.Kind().Together()
}

// minSilence is the least time after which a silent host is not alive, and maxSilence the most that
// the time between a host's records makes of it.
const (
	minSilence = 5 * time.Second
	maxSilence = 30 * time.Second
)

// View follows the records of hosts. The zero value follows the run whose records were written last,
// by the hosts' clocks, and stays with one whose records change. Use it from one goroutine.
type View struct {
	// Run and Hosts are the run that is followed and the number of its hosts. Records of other runs
	// do not count, and hosts without a record are missing.
	Run   string
	Hosts int
	// MinSilence is the least time after which a silent host is not alive; 0 is 5 seconds.
	MinSilence time.Duration

	given bool // Run and Hosts are the caller's
	since time.Time
	hosts []*track // by number; nil has no record yet
}

// track is what a view knows of a host.
type track struct {
	Record
	at      time.Time // when it changed, by the reader's clock
	changed bool
	gap     time.Duration // the longest between two changes
	skew    time.Duration
}

// begin makes room for the hosts of a run.
func (v *View) begin(run string, hosts int, now time.Time) {
	if v.since.IsZero() {
		v.given = v.Hosts > 0
	} else if v.Run == run && v.Hosts == hosts {
		return
	}
	v.Run, v.Hosts, v.since, v.hosts = run, hosts, now, make([]*track, hosts)
}

// See takes the records that were read at a time. Wall is the reader's clock, which the hosts' are
// compared with.
func (v *View) See(all []Record, now, wall time.Time) {
	if v.since.IsZero() {
		v.begin(v.Run, v.Hosts, now)
	}
	alive := slices.ContainsFunc(v.hosts, func(h *track) bool { return h != nil && h.changed && now.Sub(h.at) < maxSilence })
	here := slices.ContainsFunc(all, func(r Record) bool { return r.Run == v.Run })
	if !v.given && len(all) > 0 && !(alive && here) {
		newest := slices.MaxFunc(all, func(a, b Record) int { return a.Time.Compare(b.Time) })
		v.begin(newest.Run, newest.Hosts, now)
	}
	for _, r := range all {
		if r.Run != v.Run || r.Host >= v.Hosts {
			continue
		}
		h := v.hosts[r.Host]
		switch {
		case h == nil:
			h = &track{}
			v.hosts[r.Host] = h
		case h.Sequence == r.Sequence && h.PID == r.PID:
			continue
		case h.changed:
			h.gap = max(h.gap, min(now.Sub(h.at), maxSilence))
		default:
			h.changed = true
		}
		h.Record, h.at, h.skew = r, now, r.Time.Sub(wall.Round(0))
	}
}

// Excuse forgives the hosts' silence for a time in which the reader itself was stopped, or could
// not read.
func (v *View) Excuse(d time.Duration, now time.Time) {
	for _, h := range v.hosts {
		if h == nil {
			continue
		}
		if h.at = h.at.Add(d); h.at.After(now) {
			h.at = now
		}
	}
}

// Sights returns the hosts of the run, in their order.
func (v *View) Sights(now time.Time) []Sight {
	if v.since.IsZero() {
		v.begin(v.Run, v.Hosts, now)
	}
	least := cmp.Or(v.MinSilence, minSilence)
	all := make([]Sight, v.Hosts)
	for i, h := range v.hosts {
		if h == nil {
			all[i] = Sight{Missing: true, Silent: now.Sub(v.since), Limit: least, Record: Record{Host: i, Hosts: v.Hosts, Run: v.Run}}
			continue
		}
		s := Sight{Record: h.Record, Changed: h.changed, Silent: max(now.Sub(h.at), 0), Limit: max(least, min(h.gap*5/2, maxSilence)), Skew: h.skew}
		if s.Record.State != Ended && s.Silent > s.Limit/2 {
			s.Process = s.Record.process()
		}
		all[i] = s
	}
	return all
}
