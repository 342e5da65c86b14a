package status

import (
	"cmp"
	"slices"
	"time"
)

// Host is a host of a run as a reader sees it, also as JSON.
type Host struct {
	// Missing says that the host has no record yet.
	Missing bool `json:"missing,omitempty"`
	// Alive says that it has given a sign of life lately, and has not left the loop.
	Alive bool `json:"alive"`
	// Silent is for how many seconds the record has not changed, or not come.
	Silent float64 `json:"silent"`
	Record

	seen    time.Time     // when the record changed, by the reader's clock
	changed bool          // while it was watched, so that the host was alive then
	gap     time.Duration // the longest between two changes
	limit   float64       // the silence, in seconds, after which it is not alive
	skew    time.Duration // how far its clock is ahead of the reader's
	process string        // "is stopped" or "has ended", where the reader is on its machine
	own     *Own          // of the host that is the reader
}

// signs reports whether the host has given a sign of life lately.
func (h *Host) signs() bool { return !h.Missing && h.process == "" && h.Silent <= h.limit }

// waits reports whether the host is where others have to come.
func (h *Host) waits() bool { return !h.Missing && h.State != Ended && h.Kind().Together() }

// Own is what a reader that is a host knows of itself.
type Own struct {
	// Record is newer than the one that it has put.
	Record Record
	// Stand is how long it lets all hosts wait at the same place, and First the same while hosts are
	// missing; 0 is for ever.
	Stand, First time.Duration
	// Lost says why it does not reach the place of the records; empty if it does.
	Lost string
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
	hosts []Host
}

// begin makes room for the hosts of a run.
func (v *View) begin(run string, hosts int, now time.Time) {
	if v.since.IsZero() {
		v.given = v.Hosts > 0
	} else if v.Run == run && v.Hosts == hosts {
		return
	}
	v.Run, v.Hosts, v.since, v.hosts = run, hosts, now, make([]Host, hosts)
	for i := range v.hosts {
		v.hosts[i] = Host{Missing: true, Record: Record{Host: i, Hosts: hosts, Run: run}, seen: now}
	}
}

// See takes the records that were read at a time. Wall is the reader's clock, which the hosts' are
// compared with.
func (v *View) See(all []Record, now, wall time.Time) {
	if v.since.IsZero() {
		v.begin(v.Run, v.Hosts, now)
	}
	alive := slices.ContainsFunc(v.hosts, func(h Host) bool { return h.changed && now.Sub(h.seen) < maxSilence })
	here := slices.ContainsFunc(all, func(r Record) bool { return r.Run == v.Run })
	if !v.given && len(all) > 0 && !(alive && here) {
		newest := slices.MaxFunc(all, func(a, b Record) int { return a.Time.Compare(b.Time) })
		v.begin(newest.Run, newest.Hosts, now)
	}
	for _, r := range all {
		if r.Run != v.Run || r.Host >= v.Hosts {
			continue
		}
		h := &v.hosts[r.Host]
		switch {
		case h.Missing:
		case h.Sequence == r.Sequence && h.PID == r.PID:
			continue
		case h.changed:
			h.gap = max(h.gap, min(now.Sub(h.seen), maxSilence))
		default:
			h.changed = true
		}
		h.Missing, h.Record, h.seen, h.skew = false, r, now, r.Time.Sub(wall.Round(0))
	}
}

// Excuse forgives the hosts' silence for a time in which the reader itself was stopped, or could
// not read.
func (v *View) Excuse(d time.Duration, now time.Time) {
	for i := range v.hosts {
		if h := &v.hosts[i]; !h.Missing {
			h.seen = h.seen.Add(min(d, now.Sub(h.seen)))
		}
	}
}

// at are the hosts of the run at a time, in their order.
func (v *View) at(now time.Time) []Host {
	if v.since.IsZero() {
		v.begin(v.Run, v.Hosts, now)
	}
	least := cmp.Or(v.MinSilence, minSilence)
	all := slices.Clone(v.hosts)
	for i := range all {
		h := &all[i]
		h.Silent, h.limit = max(now.Sub(h.seen), 0).Seconds(), max(least, min(h.gap*5/2, maxSilence)).Seconds()
		if !h.Missing && h.State != Ended && h.Silent > h.limit/2 {
			h.process = h.Record.process()
		}
		h.Alive = h.signs() && h.State != Ended
	}
	return all
}

// Judge says which hosts do not go on, and which are slow, in trouble, or have a wrong clock. A wait
// of less than floor is none; it is 5 seconds where nothing else is known. Own is what the reader
// knows of itself, where it is a host; a host that sees no records has a View of one.
//
// A host is named if others wait for it and it is silent, has left, or is in an activity for longer
// than that may last: by its own experience, or, where all hosts do the same, by that of those who
// wait. That hosts take long, and all are at the same place, is a finding of own alone.
func (v *View) Judge(now time.Time, floor time.Duration, own *Own) []Finding {
	all := v.at(now)
	if own != nil && len(all) > 0 {
		h := &all[min(own.Record.Host, len(all)-1)]
		h.Record, h.own, h.Missing, h.process, h.Alive = own.Record, own, false, "", own.Record.State != Ended
	}
	return newJudge(all, floor.Seconds()).findings()
}
