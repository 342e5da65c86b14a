package watchdog

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Host is the state of a host of a run, as seen by a reader of the records.
type Host struct {
	// Missing reports that the host has no record yet.
	Missing bool `json:"missing,omitempty"`
	// Alive reports that the host has updated its record recently and has not left the training loop.
	Alive bool `json:"alive"`
	// Silent is the time in seconds since the record last changed, or since the reader started.
	Silent float64 `json:"silent"`
	Record

	hasChanged   bool          // the record has changed since the reader started
	maxGap       float64       // longest time between two changes, in seconds
	silenceLimit float64       // Silent above this limit means that the host is not alive
	clockSkew    time.Duration // host clock minus reader clock
	processState string        // "is stopped" or "has ended", if the reader is on the same machine

	isSelf            bool    // the host is the reader, which sets the following fields
	storeError        string  // error of the last access to the record store
	standstillTimeout float64 // seconds for which all hosts may wait in the same operation
}

// isResponsive reports whether the host has updated its record recently.
func (h *Host) isResponsive() bool {
	return !h.Missing && h.processState == "" && h.Silent <= h.silenceLimit
}

// isWaiting reports whether the host is in an operation that requires other hosts.
func (h *Host) isWaiting() bool {
	return !h.Missing && h.State != Ended && h.activity().WaitsForHosts()
}

// minSilence is the minimum of Host.silenceLimit in seconds. maxSilence is the maximum for hosts
// that write records at long intervals.
const (
	minSilence = 5
	maxSilence = 30
)

// Monitor follows the status records of the hosts of a run. The zero value follows the run with the
// newest record, by the hosts' clocks, as long as records of that run change. It is not safe for
// concurrent use.
//
// Time in which the record store cannot be read does not count as silence of the hosts.
type Monitor struct {
	// MinSilence is the minimum time after which a silent host does not count as alive; 0 means 5
	// seconds.
	MinSilence time.Duration

	run       string
	hosts     []Host
	fixedRun  bool          // run and hosts are set by the caller
	startTime time.Time     // time of the first read
	runSeen   time.Duration // time when the run was first seen
	lastRead  time.Duration // time of the last read or read error
}

func (v *Monitor) setRun(run string, hosts int) {
	v.run, v.hosts, v.runSeen = run, make([]Host, hosts), v.lastRead
	for i := range v.hosts {
		v.hosts[i] = Host{Missing: true, Record: Record{Host: i, Hosts: hosts, Run: run}}
	}
}

// update updates the hosts with new records. now is the reader's monotonic clock. wall is its wall
// clock, for the comparison with the hosts' clocks.
func (v *Monitor) update(records []Record, now time.Duration, wall time.Time) {
	elapsed := (now - v.lastRead).Seconds()
	v.lastRead = now
	alive := false
	for i := range v.hosts {
		h := &v.hosts[i]
		h.Silent += elapsed
		alive = alive || h.hasChanged && h.Silent < maxSilence
	}
	found := slices.ContainsFunc(records, v.isOfRun)
	if !v.fixedRun && len(records) > 0 && !(alive && found) {
		if r := newestRecord(records); r.Run != v.run || r.Hosts != len(v.hosts) {
			v.setRun(r.Run, r.Hosts)
		}
	}
	for _, r := range records {
		if !v.isOfRun(r) {
			continue
		}
		h := &v.hosts[r.Host]
		if !h.Missing {
			if h.Sequence == r.Sequence && h.PID == r.PID {
				continue
			}
			if h.hasChanged {
				h.maxGap = max(h.maxGap, h.Silent)
			}
			h.hasChanged = true
		}
		h.Missing, h.Record, h.Silent, h.clockSkew = false, r, 0, r.Time.Sub(wall.Round(0))
	}
}

func (v *Monitor) isOfRun(r Record) bool { return r.Run == v.run && r.Host < len(v.hosts) }

func newestRecord(records []Record) Record {
	return slices.MaxFunc(records, func(a, b Record) int { return a.Time.Compare(b.Time) })
}

// currentHosts returns the states of the hosts at the last read, by host number.
func (v *Monitor) currentHosts() []Host {
	hosts := slices.Clone(v.hosts)
	for i := range hosts {
		h := &hosts[i]
		h.silenceLimit = max(cmp.Or(v.MinSilence.Seconds(), minSilence), min(h.maxGap*2.5, maxSilence))
		if !h.Missing && h.State != Ended && h.Silent > h.silenceLimit/2 {
			h.processState = h.checkProcess()
		}
		h.Alive = h.isResponsive() && h.State != Ended
	}
	return hosts
}

// Status reads the records of all hosts in a store and returns the state of the run. An error means
// that the records cannot be listed.
func (v *Monitor) Status(ctx context.Context, store *RecordStore) (RunStatus, error) {
	records, unreadable, err := store.ReadAll(ctx, 0)
	if err != nil {
		v.lastRead = time.Since(v.startTime)
		return RunStatus{}, err
	}
	return v.newStatus(store.store.String(), records, unreadable, time.Now()), nil
}
