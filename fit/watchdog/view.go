package watchdog

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Host is the state of a host of a run as a reader sees it. It can be encoded as JSON.
type Host struct {
	// Missing reports that the host has no record yet.
	Missing bool `json:"missing,omitempty"`
	// Alive reports that the host has updated its record recently and has not left the loop.
	Alive bool `json:"alive"`
	// Silent is the time in seconds for which the record has not changed or not appeared.
	Silent float64 `json:"silent"`
	Record

	changed bool          // the record has changed since the reader started
	gap     float64       // longest time between two changes, in seconds
	limit   float64       // Silent above this limit means that the host is not alive
	skew    time.Duration // host clock minus reader clock
	gone    string        // "is stopped" or "has ended", if the reader is on the same machine

	own   bool    // the host is the reader, which sets the following fields
	lost  string  // error of the access to the place of the records
	stand float64 // time in seconds for which all hosts may wait at the same place
}

// signs reports whether the host has updated its record recently.
func (h *Host) signs() bool { return !h.Missing && h.gone == "" && h.Silent <= h.limit }

// waits reports whether the host is in an operation that requires the other hosts.
func (h *Host) waits() bool { return !h.Missing && h.State != Ended && h.kind().WaitsForHosts() }

// minSilence is the minimum of Host.limit in seconds. maxSilence limits the value that is derived
// from the time between a host's records.
const (
	minSilence = 5
	maxSilence = 30
)

// View follows the records of the hosts of a run. The zero value follows the run with the newest
// record, by the hosts' clocks, and stays with a run whose records change. It is not safe for
// concurrent use.
//
// The time in which the place of the records cannot be read does not count as silence of the hosts.
type View struct {
	// MinSilence is the minimum time after which a silent host is not alive; 0 means 5 seconds.
	MinSilence time.Duration

	run   string
	hosts []Host
	given bool          // run and hosts are set by the caller
	began time.Time     // time of the first look
	since time.Duration // time when the run was first seen
	read  time.Duration // time of the last read or read error
}

func (v *View) follow(run string, hosts int) {
	v.run, v.hosts, v.since = run, make([]Host, hosts), v.read
	for i := range v.hosts {
		v.hosts[i] = Host{Missing: true, Record: Record{Host: i, Hosts: hosts, Run: run}}
	}
}

// see updates the hosts with records. now is the reader's monotonic clock, and wall is its wall
// clock, which is compared with the hosts' clocks.
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

// follows reports whether a record belongs to the run.
func (v *View) follows(r Record) bool { return r.Run == v.run && r.Host < len(v.hosts) }

func newest(all []Record) Record {
	return slices.MaxFunc(all, func(a, b Record) int { return a.Time.Compare(b.Time) })
}

// now returns the state of the hosts at the last read, by number.
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

// Look reads the records of all hosts on a board and returns the state of the run. An error means
// that the records cannot be listed.
func (v *View) Look(ctx context.Context, b *Board) (Look, error) {
	all, unreadable, err := b.Read(ctx, 0)
	if err != nil {
		v.read = time.Since(v.began)
		return Look{}, err
	}
	return v.look(b.store.String(), all, unreadable, time.Now()), nil
}
