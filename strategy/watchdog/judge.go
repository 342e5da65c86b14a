package watchdog

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// What hosts are judged by: in floors, in times of the usual, in seconds or in steps.
const (
	begins    = 0.6         // the part of a floor after which a wait is one
	long      = 12          // how many floors something other than a step lasts before it is sure not to end
	factor    = 4           // how many times as long as its usual time an activity may last
	maxSkew   = time.Minute // how far a clock may be off
	minWindow = 5           // the time over which hosts are compared
	ahead     = 16          // how many steps that are launched and not done a host may be ahead of another
	between   = 2           // the most time between two records
	most      = 0.6         // the part of a host's time that is most of it
)

// self is what a reader that is a host knows of itself.
type self struct {
	*Host
	stand float64 // how long it lets all hosts wait at the same place, in seconds
	first float64 // the same while hosts are missing
	lost  string  // why it does not reach the place of the records
}

// verdict is what all hosts are judged by.
type verdict struct {
	all     []Host
	floor   float64
	self    *self // of a reader that is a host
	running []*Host
	meeting *call   // where more than half of them wait for the others, or nil
	wait    float64 // the longest that a host waits for others
	company bool    // there is a record of another host than the reader
	lively  bool    // the place of the records shows how hosts are: one that is not reached does not
	step    int64   // the furthest
	clocks  bool    // those of most others are known
	clock   bool    // it is the reader's own clock that differs from most
	steady  bool    // all hosts have been running for a while
}

// call is a call in which hosts meet.
type call struct {
	step          int64
	doing, detail string
}

func (r *Record) call() call { return call{r.Step, r.Doing, r.Detail} }

// compare orders hosts by the places they are at.
func compare(a, b *Host) int {
	return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Turn, b.Turn))
}

// judge says which hosts do not go on, and which are slow, in trouble, or have a wrong clock. A wait
// of less than floor, in seconds, is none. The reader is one of the hosts, or nil.
//
// A host is named if others wait for it and it is silent, has left, or is in an activity for longer
// than that may last: by its own experience, or, where all hosts do the same, by that of those who
// wait. That hosts take long, and all are at the same place, is a finding of the reader alone.
func judge(all []Host, floor float64, reader *self) []Finding {
	j := &verdict{all: all, floor: floor, self: reader, lively: len(all) == 1, steady: len(all) > 1}
	others, known, off := 0, 0, 0
	for i := range all {
		h := &all[i]
		j.steady = j.steady && h.signs() && h.State == Running && h.Window >= minWindow && h.Step > 0
		if h.Missing {
			continue
		}
		j.lively = j.lively || j.lost() == "" && h.changed && h.signs() || h.gone != ""
		if h.waits() {
			j.wait = max(j.wait, h.For)
		}
		if h.signs() {
			j.step = max(j.step, h.Step)
		}
		if h.Alive {
			j.running = append(j.running, h)
		}
		if j.own(h) {
			continue
		}
		if others++; h.changed {
			if known++; h.skew.Abs() > maxSkew {
				off++
			}
		}
	}
	j.company = others > 0
	j.clocks, j.clock = known*2 > others, known > 1 && off*2 > known
	meetings := map[call]int{}
	for _, h := range j.running {
		if c := h.call(); h.waits() && h.For >= begins*floor {
			if meetings[c]++; meetings[c]*2 > len(j.running) {
				j.meeting = &c
			}
		}
	}
	found := j.stuck()
	for i := range all {
		h := &all[i]
		if h.Missing || h.State == Ended {
			continue
		}
		for _, note := range []Finding{{Cause: Store, Text: j.unreached(h)}, {Cause: Trouble, Text: h.Trouble}, {Cause: Clock, Text: j.skewed(h)}, {Cause: Slow, Text: j.slow(h)}} {
			if note.Text != "" {
				note.Host, note.Name = h.Record.Host, h.Name
				found = append(found, note)
			}
		}
	}
	return found
}

// own reports whether a host is the reader.
func (j *verdict) own(h *Host) bool { return j.self != nil && h == j.self.Host }

func (j *verdict) lost() string {
	if j.self == nil {
		return ""
	}
	return j.self.lost
}

// stuck finds who stops the run: those that are not there, or else those that are behind, or nobody.
func (j *verdict) stuck() []Finding {
	var absent, behind []Finding
	for i := range j.all {
		h := &j.all[i]
		if h.State == Ended && slices.ContainsFunc(h.Findings, stops) { // it gave up, and knew because of whom
			for _, f := range h.Findings {
				if stops(f) && j.wait >= j.floor && !slices.ContainsFunc(absent, func(o Finding) bool { return o.Host == f.Host }) {
					f.Sure = true
					absent = append(absent, f)
				}
			}
		} else if f := j.absent(h); f.Cause != "" {
			absent = append(absent, f)
		} else if f := j.behind(h); f.Cause != "" {
			behind = append(behind, f)
		}
	}
	if len(absent) > 0 && j.lively {
		return absent
	}
	if len(absent) > 0 || len(behind) > 2 && len(behind) == len(j.running) { // the reader knows of itself alone
		behind = slices.DeleteFunc(behind, func(f Finding) bool { return !j.own(&j.all[f.Host]) })
	}
	if len(behind) == 0 {
		return j.stand()
	}
	return behind
}

// absent is the finding of a host that is not there any more, and for which others wait.
func (j *verdict) absent(h *Host) Finding {
	r := &h.Record
	f := Finding{Host: r.Host, Name: r.Name, For: h.Silent, Sure: true}
	switch {
	case j.own(h) || j.wait < j.floor/2 || j.wait < j.floor && h.gone == "":
	case h.Missing && j.company && h.Silent > h.limit:
		f.Cause, f.Text = Missing, "it has given no sign of life in this run"
	case h.Missing || h.signs() && r.State != Ended:
	case r.State == Ended:
		f.Cause, f.Text, f.For = Left, fmt.Sprintf("it left the loop after step %d", r.Step), 0
		if r.Error != "" {
			f.Text += ": " + r.Error
		}
	default:
		f.Cause, f.Text = Silent, fmt.Sprintf("no sign of life for %s; it was last heard of after step %d, in %s", seconds(f.For), r.Step, r.doing())
		if h.gone != "" {
			f.Text = fmt.Sprintf("its process %d %s: %s", r.PID, h.gone, f.Text)
		}
	}
	return f
}

// behind is the finding of a host that others have passed and wait for, or that is elsewhere.
func (j *verdict) behind(h *Host) (f Finding) {
	r := &h.Record
	if !h.Alive {
		return f
	}
	waiting := j.waiting(h)
	late := r.Bound > 0 && r.For > r.Bound // by its own experience
	sure := late
	switch k := r.kind(); {
	case k.Together():
		sure = true
		if len(waiting) == 0 || r.For < j.floor || k != Exchange && !late || !j.elsewhere(h) {
			return f
		}
	case late:
		sure = k == Input || r.For > long*j.floor // which a save or an evaluation does not know well
	case len(waiting) == 0 || r.Host == 0 || !j.longer(r, waiting): // host 0 alone writes files
		return f
	}
	f = Finding{Host: r.Host, Name: r.Name, Cause: Cause(r.kind().String()), For: r.For, Sure: sure,
		Text: fmt.Sprintf("in %s for %s, after step %d", r.doing(), seconds(r.For), r.Step)}
	if len(waiting) > 0 {
		w := waiting[0]
		f.Text += fmt.Sprintf("; %s, in %s after step %d", plural(len(waiting), "host waits", "hosts wait"), w.doing(), w.Step)
	}
	if r.Trouble != "" {
		f.Text += "; its trouble: " + r.Trouble
	}
	return f
}

// waiting are the hosts that wait while h is not where they are.
func (j *verdict) waiting(h *Host) (all []*Host) {
	for i := range j.all {
		o := &j.all[i]
		if o != h && o.signs() && o.waits() && o.For >= begins*j.floor && (compare(o, h) > 0 || h.waits() && o.call() != h.call()) {
			all = append(all, o)
		}
	}
	return all
}

// elsewhere reports whether a host is in another call than most, or in the last one where there is
// no most.
func (j *verdict) elsewhere(h *Host) bool {
	if j.meeting != nil {
		return h.call() != *j.meeting
	}
	return compare(h, slices.MinFunc(j.running, compare)) == 0 && compare(h, slices.MaxFunc(j.running, compare)) < 0
}

// longer reports whether a host's activity has lasted longer than the experience of those who wait
// lets expect: most have done the same.
func (j *verdict) longer(r *Record, waiting []*Host) bool {
	usual, known := 0.0, 0
	for _, o := range waiting {
		if took, ok := o.Took[r.Doing]; ok {
			usual = max(usual, took)
			known++
		}
	}
	return known*2 > len(waiting) && r.For > max(j.floor, factor*usual)
}

// stand is the finding of a run in which all hosts wait at the same place, after the reader has
// waited in vain.
func (j *verdict) stand() []Finding {
	if j.self == nil || slices.ContainsFunc(j.running, func(h *Host) bool { return !h.waits() }) {
		return nil
	}
	h, stand := j.self, j.self.stand
	if slices.ContainsFunc(j.all, func(o Host) bool { return o.Missing }) { // of which nothing is known
		stand = max(stand, h.first)
	}
	if h.For <= stand {
		return nil
	}
	return []Finding{{Host: -1, Cause: Nobody, For: h.For, Sure: true,
		Text: fmt.Sprintf("no host stands out: %d of %d give a sign of life, and wait in %s for %s, after step %d",
			len(j.running), h.Hosts, h.doing(), seconds(h.For), h.Step)}}
}

// unreached says of a host that it does not reach the place of the records, or not that of others.
func (j *verdict) unreached(h *Host) string {
	switch own := j.own(h); {
	case own && j.lost() != "":
		return "it cannot reach the place of the hosts' records, without which hosts do not see each other: " + j.lost()
	case own && !j.company && slices.ContainsFunc(j.all, func(o Host) bool { return o.Missing && o.Silent > 2*o.limit }):
		return "it sees no record of any other host: give a place that all hosts share, or else no other host has come"
	case !own && h.Silent > h.limit && h.gone == "" && j.lively && float64(j.step-h.Step) > ahead+between*h.Rate:
		return fmt.Sprintf("its records ended %s ago, after step %d, while the run is at step %d: it cannot reach their place", seconds(h.Silent), h.Step, j.step)
	}
	return ""
}

// skewed says by how much a host's clock is wrong.
func (j *verdict) skewed(h *Host) string {
	off := h.skew.Abs().Round(time.Second)
	switch own := j.own(h); {
	case !j.clocks:
	case own && j.clock:
		return "its clock differs from that of most other hosts by more than a minute"
	case own || j.clock || !h.changed || off <= maxSkew:
	case h.skew < 0:
		return fmt.Sprintf("its clock is %s behind this one", off)
	default:
		return fmt.Sprintf("its clock is %s ahead of this one", off)
	}
	return ""
}

// slow says of a host that goes on that the others wait for it in most of their time.
func (j *verdict) slow(h *Host) string {
	own, together := h.shares()
	if !j.steady || own < most || together > 0.2 || h.For >= begins*j.floor {
		return ""
	}
	others := 0 // that do not wait in most of their time
	for i := range j.all {
		if _, together := j.all[i].shares(); &j.all[i] != h && together < most {
			others++
		}
	}
	kind := Other
	if h.Shares[Input.String()] > own/2 {
		kind = Input
	}
	// Each step takes it so long, not one of many.
	if part := h.Took[kind.String()] * h.Rate; others > (len(j.all)-1)/4 || part < 0.3 || part > 2 {
		return ""
	}
	return fmt.Sprintf("it is slow: %.0f %% of its time goes into %s, while the others wait", 100*own, whereabouts[kind])
}

// shares are the parts of a host's time in its own work and in what is done together. Saves, hooks
// and the like, which not all hosts do alike, count for neither.
func (r *Record) shares() (own, together float64) {
	s := r.Shares
	return s[Input.String()] + s[Other.String()], s[Launch.String()] + s[Result.String()] + s[Exchange.String()]
}
