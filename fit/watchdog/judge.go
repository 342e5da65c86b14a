package watchdog

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Constants for the comparison of hosts.
const (
	begins    = 0.6         // fraction of the floor after which a host counts as waiting
	long      = 12          // number of floors after which an activity other than a step is sure not to complete
	factor    = 4           // ratio of a timeout to the usual duration
	maxSkew   = time.Minute // maximum error of a clock
	minWindow = 5           // minimum time over which hosts are compared, in seconds
	ahead     = 16          // maximum number of launched, incomplete steps by which a host may be ahead of another
	between   = 2           // maximum time between two records, in seconds
	most      = 0.6         // fraction of a host's time that counts as most of it
)

// verdict is the state of judge.
type verdict struct {
	all     []Host
	floor   float64
	own     *Host // the reader, or nil
	running []*Host
	meeting *call   // where more than half of the running hosts wait, or nil
	wait    float64 // longest time for which a host waits for others
	company bool    // a host other than the reader has a record
	lively  bool    // the board is up to date
	found   []Finding
}

// call is an operation in which hosts wait for each other.
type call struct {
	step          int64
	doing, detail string
}

func (r *Record) call() call { return call{r.Step, r.Doing, r.Detail} }

// compare orders hosts by their progress.
func compare(a, b *Host) int {
	return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Turn, b.Turn))
}

// judge finds the hosts that make no progress, and the hosts that are slow, in trouble, or have a
// wrong clock. A wait shorter than floor, in seconds, is ignored.
//
// A host is named if others wait for it and it is silent, has left, or is in an activity for longer
// than its timeout: its own timeout or, if all hosts do the same work, a timeout derived from the
// waiting hosts' durations. If all hosts wait at the same place for too long, only a reader that is
// one of the hosts reports that.
func judge(all []Host, floor float64) []Finding {
	j := &verdict{all: all, floor: floor, lively: len(all) == 1}
	for i := range all {
		h := &all[i]
		if h.own {
			j.own = h
		}
		if h.waits() {
			j.wait = max(j.wait, h.For)
		}
		if h.Alive {
			j.running = append(j.running, h)
		}
		j.company = j.company || !h.own && !h.Missing
		j.lively = j.lively || h.changed && h.signs() || h.gone != ""
	}
	meetings := map[call]int{}
	for _, h := range j.running {
		if c := h.call(); h.waits() && h.For >= begins*floor {
			if meetings[c]++; meetings[c]*2 > len(j.running) {
				j.meeting = &c
			}
		}
	}
	j.found = j.stuck()
	j.unreached()
	for i := range all {
		if h := &all[i]; h.Trouble != "" && h.State != Ended {
			j.note(h, Trouble, "%s", h.Trouble)
		}
	}
	j.clocks()
	j.slow()
	return j.found
}

// note adds a finding for a host that makes progress.
func (j *verdict) note(h *Host, cause Cause, format string, args ...any) {
	j.found = append(j.found, Finding{Host: h.Record.Host, Name: h.Name, Cause: cause, Text: fmt.Sprintf(format, args...)})
}

// stuck finds the hosts that stop the run: absent hosts, or otherwise hosts that are behind, or
// none if no host stands out.
func (j *verdict) stuck() []Finding {
	var absent, behind []Finding
	for i := range j.all {
		h := &j.all[i]
		if h.Alive {
			if f := j.behind(h); f.Cause != "" {
				behind = append(behind, f)
			}
		} else if slices.ContainsFunc(h.Findings, stops) && h.State == Ended { // the host gave up because of other hosts
			for _, f := range unlike(h.Findings, absent) {
				if f.Sure = true; stops(f) && j.wait >= j.floor {
					absent = append(absent, f)
				}
			}
		} else if f := j.absent(h); f.Cause != "" {
			absent = append(absent, f)
		}
	}
	if len(absent) > 0 && j.lively {
		return absent
	}
	if len(absent) > 0 || len(behind) > 2 && len(behind) == len(j.running) { // only the reader's own state is reliable
		behind = slices.DeleteFunc(behind, func(f Finding) bool { return j.own == nil || f.Host != j.own.Record.Host })
	}
	if len(behind) == 0 {
		return j.stand()
	}
	return behind
}

// absent returns the finding of a host that is gone and that others wait for.
func (j *verdict) absent(h *Host) Finding {
	f := Finding{Host: h.Record.Host, Name: h.Name, For: h.Silent, Sure: true}
	switch {
	case j.wait < j.floor/2 || j.wait < j.floor && h.gone == "":
	case h.Missing && (!j.company || h.Silent <= h.limit):
	case h.Missing:
		f.Cause, f.Text = Missing, "it has given no sign of life in this run"
	case h.State == Ended:
		f.Cause, f.Text, f.For = Left, fmt.Sprintf("it left the loop after step %d", h.Step), 0
		if h.Error != "" {
			f.Text += ": " + h.Error
		}
	default:
		f.Cause, f.Text = Silent, fmt.Sprintf("no sign of life for %s; it was last heard of after step %d, in %s", seconds(f.For), h.Step, h.doing())
		if h.gone != "" {
			f.Text = fmt.Sprintf("its process %d %s: %s", h.PID, h.gone, f.Text)
		}
	}
	return f
}

// behind returns the finding of a host that others have passed and wait for, or that is in another
// operation.
func (j *verdict) behind(h *Host) (f Finding) {
	waiting := j.waiting(h)
	late := h.Bound > 0 && h.For > h.Bound // above its own timeout
	sure := late
	switch k := h.kind(); {
	case k.WaitsForHosts():
		sure = true
		if len(waiting) == 0 || h.For < j.floor || k != Exchange && !late || !j.elsewhere(h) {
			return f
		}
	case late:
		sure = k == Input || h.For > long*j.floor // the durations of saves and evaluations vary
	case len(waiting) == 0 || h.Record.Host == 0 || !j.longer(h, waiting): // only host 0 writes files
		return f
	}
	f = Finding{Host: h.Record.Host, Name: h.Name, Cause: Cause(h.kind().String()), For: h.For, Sure: sure,
		Text: fmt.Sprintf("in %s for %s, after step %d", h.doing(), seconds(h.For), h.Step)}
	if len(waiting) > 0 {
		w := waiting[0]
		f.Text += fmt.Sprintf("; %s, in %s after step %d", plural(len(waiting), "host waits", "hosts wait"), w.doing(), w.Step)
	}
	if h.Trouble != "" {
		f.Text += "; its trouble: " + h.Trouble
	}
	return f
}

// waiting returns the hosts that wait at a place that h has not reached.
func (j *verdict) waiting(h *Host) (all []*Host) {
	for i := range j.all {
		o := &j.all[i]
		if o != h && o.signs() && o.waits() && o.For >= begins*j.floor && (compare(o, h) > 0 || h.waits() && o.call() != h.call()) {
			all = append(all, o)
		}
	}
	return all
}

// elsewhere reports whether a host is in another operation than most hosts, or has made the least
// progress if there is no majority.
func (j *verdict) elsewhere(h *Host) bool {
	if j.meeting != nil {
		return h.call() != *j.meeting
	}
	return compare(h, slices.MinFunc(j.running, compare)) == 0 && compare(h, slices.MaxFunc(j.running, compare)) < 0
}

// longer reports whether a host's activity has lasted longer than expected from the durations of
// the waiting hosts, if most of these have done the same.
func (j *verdict) longer(h *Host, waiting []*Host) bool {
	usual, known := 0.0, 0
	for _, o := range waiting {
		if took, ok := o.Took[h.Doing]; ok {
			usual = max(usual, took)
			known++
		}
	}
	return known*2 > len(waiting) && h.For > max(j.floor, factor*usual)
}

// stand returns the finding of a run in which all hosts wait at the same place for too long.
func (j *verdict) stand() []Finding {
	h := j.own
	if h == nil || h.For <= h.stand || slices.ContainsFunc(j.running, func(o *Host) bool { return !o.waits() }) {
		return nil
	}
	return []Finding{{Host: -1, Cause: Undetermined, For: h.For, Sure: true,
		Text: fmt.Sprintf("no host stands out: %d of %d give a sign of life, and wait in %s for %s, after step %d",
			len(j.running), h.Hosts, h.doing(), seconds(h.For), h.Step)}}
}

// unreached notes the hosts that cannot access the board.
func (j *verdict) unreached() {
	var step int64 // largest step of a host
	for i := range j.all {
		if h := &j.all[i]; h.signs() {
			step = max(step, h.Step)
		}
	}
	for i := range j.all {
		switch h := &j.all[i]; {
		case h.Missing || h.State == Ended:
		case h.lost != "":
			j.note(h, Store, "it cannot reach the place of the hosts' records, without which hosts do not see each other: %s", h.lost)
		case h.own && !j.company && slices.ContainsFunc(j.all, func(o Host) bool { return o.Missing && o.Silent > 2*o.limit }):
			j.note(h, Store, "it sees no record of any other host: give a place that all hosts share, or else no other host has come")
		case !h.own && h.Silent > h.limit && h.gone == "" && j.lively && float64(step-h.Step) > ahead+between*h.Rate:
			j.note(h, Store, "its records ended %s ago, after step %d, while the run is at step %d: it cannot reach their place", seconds(h.Silent), h.Step, step)
		}
	}
}

// clocks notes the hosts whose clock differs from the clocks of most hosts and of the reader.
func (j *verdict) clocks() {
	skews := []time.Duration{0}
	for i := range j.all {
		if h := &j.all[i]; h.changed && !h.own {
			skews = append(skews, h.skew)
		}
	}
	if len(skews)*2 <= len(j.all) {
		return // too few clocks are known
	}
	slices.Sort(skews)
	right := min(max(0, skews[(len(skews)-1)/2]), skews[len(skews)/2]) // of two medians the one nearer to the reader
	for i := range j.all {
		h := &j.all[i]
		if off := (h.skew - right).Round(time.Second); off.Abs() > maxSkew && (h.changed || h.own) && h.State != Ended {
			way := "ahead of"
			if off < 0 {
				way = "behind"
			}
			j.note(h, Clock, "its clock is %s %s those of most hosts", off.Abs(), way)
		}
	}
}

// slow notes the hosts that make progress, but for which the others wait most of the time. It
// requires that all hosts have run for some time.
func (j *verdict) slow() {
	busy := 0 // hosts that do not wait most of the time
	for i := range j.all {
		h := &j.all[i]
		if !h.signs() || h.State != Running || h.Window < minWindow || h.Step == 0 {
			return
		}
		if _, together := h.shares(); together < most {
			busy++
		}
	}
	if busy > 1+(len(j.all)-1)/4 || len(j.all) == 1 {
		return
	}
	for i := range j.all {
		h := &j.all[i]
		own, together := h.shares()
		kind := Other
		if h.Shares[Input.String()] > own/2 {
			kind = Input
		}
		// Every step takes this long, not only one of many.
		if part := h.Took[kind.String()] * h.Rate; own >= most && together <= 0.2 && h.For < begins*j.floor && part >= 0.3 && part <= 2 {
			j.note(h, Slow, "it is slow: %.0f %% of its time goes into %s, while the others wait", 100*own, whereabouts[kind])
		}
	}
}

// shares returns the fractions of a host's time in its own work and in operations with other hosts.
// Activities that differ between hosts, such as saves and hooks, belong to neither.
func (r *Record) shares() (own, together float64) {
	s := r.Shares
	return s[Input.String()] + s[Other.String()], s[Launch.String()] + s[Result.String()] + s[Exchange.String()]
}
