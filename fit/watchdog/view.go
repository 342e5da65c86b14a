package watchdog

import (
	"cmp"
	"context"
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

	changed bool          // while it was watched, so that the host was alive then
	gap     float64       // the longest silence before a change, in seconds
	limit   float64       // the silence after which it is not alive
	skew    time.Duration // how far its clock is ahead of the reader's
	gone    string        // "is stopped" or "has ended", where the reader is on its machine

	own   bool    // it is the reader, which knows:
	lost  string  // why it does not reach the place of the records
	stand float64 // how long it lets all hosts wait at the same place, in seconds
}

// signs reports whether the host has given a sign of life lately.
func (h *Host) signs() bool { return !h.Missing && h.gone == "" && h.Silent <= h.limit }

// waits reports whether the host is where others have to come.
func (h *Host) waits() bool { return !h.Missing && h.State != Ended && h.kind().Together() }

// minSilence is the least time in seconds after which a silent host is not alive, and maxSilence the
// most that the time between a host's records makes of it.
const (
	minSilence = 5
	maxSilence = 30
)

// View follows the records of hosts. The zero value follows the run whose records were written last,
// by the hosts' clocks, and stays with one whose records change. Use it from one goroutine.
//
// The hosts' silence is counted from one reading to the next: no time passes for it in which the place
// cannot be read.
type View struct {
	// MinSilence is the least time after which a silent host is not alive; 0 is 5 seconds.
	MinSilence time.Duration

	run   string
	hosts []Host
	given bool          // run and hosts are the caller's
	began time.Time     // of the first look
	since time.Duration // when the run was first seen
	read  time.Duration // when they were last read, or could not be
}

// follow begins to follow a run.
func (v *View) follow(run string, hosts int) {
	v.run, v.hosts, v.since = run, make([]Host, hosts), v.read
	for i := range v.hosts {
		v.hosts[i] = Host{Missing: true, Record: Record{Host: i, Hosts: hosts, Run: run}}
	}
}

// see takes the records that were read at a time of the reader's monotonic clock. Wall is its other
// one, which the hosts' are compared with.
func (v *View) see(all []Record, now time.Duration, wall time.Time) {
	passed := (now - v.read).Seconds()
	v.read = now
	alive := false
	for i := range v.hosts {
		h := &v.hosts[i]
		h.Silent += passed
		alive = alive || h.changed && h.Silent < maxSilence
	}
	here := slices.ContainsFunc(all, v.follows)
	if !v.given && len(all) > 0 && !(alive && here) {
		if r := newest(all); r.Run != v.run || r.Hosts != len(v.hosts) {
			v.follow(r.Run, r.Hosts)
		}
	}
	for _, r := range all {
		if !v.follows(r) {
			continue
		}
		h := &v.hosts[r.Host]
		if !h.Missing {
			if h.Sequence == r.Sequence && h.PID == r.PID {
				continue
			}
			if h.changed {
				h.gap = max(h.gap, h.Silent)
			}
			h.changed = true
		}
		h.Missing, h.Record, h.Silent, h.skew = false, r, 0, r.Time.Sub(wall.Round(0))
	}
}

// follows reports whether a record is of the run.
func (v *View) follows(r Record) bool { return r.Run == v.run && r.Host < len(v.hosts) }

func newest(all []Record) Record {
	return slices.MaxFunc(all, func(a, b Record) int { return a.Time.Compare(b.Time) })
}

// now are the hosts of the run as they were last seen, in their order.
func (v *View) now() []Host {
	all := slices.Clone(v.hosts)
	for i := range all {
		h := &all[i]
		h.limit = max(cmp.Or(v.MinSilence.Seconds(), minSilence), min(h.gap*2.5, maxSilence))
		if !h.Missing && h.State != Ended && h.Silent > h.limit/2 {
			h.gone = h.process()
		}
		h.Alive = h.signs() && h.State != Ended
	}
	return all
}

// Look reads the records of a board, of all hosts that are listed, and says what there is to see.
func (v *View) Look(ctx context.Context, b *Board) (Look, error) {
	all, unreadable, err := b.Read(ctx, 0)
	if err != nil {
		v.read = time.Since(v.began)
		return Look{}, err
	}
	return v.look(b.store.String(), all, unreadable, time.Now()), nil
}
