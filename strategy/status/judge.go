package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/activity"
)

// What is judged by, in floors of [Judge], in times of the usual, in seconds or in steps.
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

// Judge says which hosts do not go on, and which are slow, in trouble, or have a wrong clock. A wait
// of less than floor is none; it is 5 seconds where nothing else is known.
//
// A host is named if others wait for it and it is silent, has left, or is in an activity for longer
// than that may last: by its own experience, or, where all hosts do the same, by that of those who
// wait. That hosts take long, and all are at the same place, is a finding of the reader alone, after
// [Sight].Stand.
func Judge(all []Sight, floor time.Duration) []Finding {
	j := newJudge(all, floor.Seconds())
	found := j.stuck()
	for _, rule := range rules {
		for i := range all {
			s := &all[i]
			if s.Missing || s.Record.State == Ended {
				continue
			}
			if text := rule.text(j, s); text != "" {
				found = append(found, Finding{Host: s.Record.Host, Name: s.Record.Name, Cause: rule.cause, Text: text})
			}
		}
	}
	return found
}

// judge is what all hosts are judged by.
type judge struct {
	all     []Sight
	floor   float64
	running []*Sight
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
func compare(a, b *Sight) int {
	return cmp.Or(cmp.Compare(a.Record.Step, b.Record.Step), cmp.Compare(a.Record.Turn, b.Record.Turn))
}

func newJudge(all []Sight, floor float64) *judge {
	j := &judge{all: all, floor: floor, lively: len(all) == 1, steady: len(all) > 1}
	others, known, off := 0, 0, 0
	lost := slices.ContainsFunc(all, func(s Sight) bool { return s.Lost != "" })
	for i := range all {
		s := &all[i]
		r := &s.Record
		j.steady = j.steady && s.Alive() && r.State == Running && r.Window >= minWindow && r.Step > 0
		if s.Missing {
			continue
		}
		j.lively = j.lively || !lost && s.Changed && s.Alive() || s.Process != ""
		if s.waits() {
			j.wait = max(j.wait, r.For)
		}
		if s.Alive() {
			j.step = max(j.step, r.Step)
		}
		if s.running() {
			j.running = append(j.running, s)
		}
		if !s.Here {
			others++
		}
		if s.Changed && !s.Here {
			known++
			if s.Skew.Abs() > maxSkew {
				off++
			}
		}
	}
	j.company = others > 0
	j.clocks, j.clock = known*2 > others, known > 1 && off*2 > known
	meetings := map[call]int{}
	for _, s := range j.running {
		if c := s.Record.call(); s.waits() && s.Record.For >= begins*floor {
			if meetings[c]++; meetings[c]*2 > len(j.running) {
				j.meeting = &c
			}
		}
	}
	return j
}

// stuck finds who stops the run: those that are not there, or else those that are behind, or nobody.
func (j *judge) stuck() []Finding {
	var absent, behind []Finding
	for i := range j.all {
		s := &j.all[i]
		if s.Record.State == Ended && slices.ContainsFunc(s.Record.Findings, stops) { // it gave up, and knew because of whom
			for _, f := range s.Record.Findings {
				if stops(f) && j.wait >= j.floor && !slices.ContainsFunc(absent, func(o Finding) bool { return o.Host == f.Host }) {
					f.Sure = true
					absent = append(absent, f)
				}
			}
		} else if f := j.absent(s); f.Cause != "" {
			absent = append(absent, f)
		} else if f := j.behind(s); f.Cause != "" {
			behind = append(behind, f)
		}
	}
	if len(absent) > 0 && j.lively {
		return absent
	}
	if len(absent) > 0 || len(behind) > 2 && len(behind) == len(j.running) { // the reader knows of itself alone
		behind = slices.DeleteFunc(behind, func(f Finding) bool { return !j.all[f.Host].Here })
	}
	if len(behind) == 0 {
		return j.stand()
	}
	return behind
}

// absent is the finding of a host that is not there any more, and for which others wait.
func (j *judge) absent(s *Sight) Finding {
	r := &s.Record
	f := Finding{Host: r.Host, Name: r.Name, For: s.Silent.Seconds(), Sure: true}
	switch {
	case s.Here || j.wait < j.floor/2 || j.wait < j.floor && s.Process == "":
	case s.Missing && j.company && s.Silent > s.Limit:
		f.Cause, f.Text = Missing, "it has given no sign of life in this run"
	case s.Missing || s.Alive() && r.State != Ended:
	case r.State == Ended:
		f.Cause, f.Text, f.For = Left, fmt.Sprintf("it left the loop after step %d", r.Step), 0
		if r.Error != "" {
			f.Text += ": " + r.Error
		}
	default:
		f.Cause, f.Text = Silent, fmt.Sprintf("no sign of life for %s; it was last heard of after step %d, in %s", seconds(f.For), r.Step, r.doing())
		if s.Process != "" {
			f.Text = fmt.Sprintf("its process %d %s: %s", r.PID, s.Process, f.Text)
		}
	}
	return f
}

// behind is the finding of a host that others have passed and wait for, or that is elsewhere.
func (j *judge) behind(s *Sight) (f Finding) {
	r := &s.Record
	if !s.running() {
		return f
	}
	waiting := j.waiting(s)
	late := r.Bound > 0 && r.For > r.Bound // by its own experience
	sure := late
	switch k := r.Kind(); {
	case k.Together():
		sure = true
		if len(waiting) == 0 || r.For < j.floor || k != activity.Exchange && !late || !j.elsewhere(s) {
			return f
		}
	case late:
		sure = k == activity.Input || r.For > long*j.floor // which a save or an evaluation does not know well
	case len(waiting) == 0 || r.Host == 0 || !j.longer(r, waiting): // host 0 alone writes files
		return f
	}
	f = Finding{Host: r.Host, Name: r.Name, Cause: Cause(r.Kind().String()), For: r.For, Sure: sure,
		Text: fmt.Sprintf("in %s for %s, after step %d", r.doing(), seconds(r.For), r.Step)}
	if len(waiting) > 0 {
		w := &waiting[0].Record
		f.Text += fmt.Sprintf("; %s, in %s after step %d", plural(len(waiting), "host waits", "hosts wait"), w.doing(), w.Step)
	}
	if r.Trouble != "" {
		f.Text += "; its trouble: " + r.Trouble
	}
	return f
}

// waiting are the hosts that wait while s is not where they are.
func (j *judge) waiting(s *Sight) (all []*Sight) {
	for i := range j.all {
		o := &j.all[i]
		if o != s && o.Alive() && o.waits() && o.Record.For >= begins*j.floor &&
			(compare(o, s) > 0 || s.waits() && o.Record.call() != s.Record.call()) {
			all = append(all, o)
		}
	}
	return all
}

// elsewhere reports whether a host is in another call than most, or in the last one where there is
// no most.
func (j *judge) elsewhere(s *Sight) bool {
	if j.meeting != nil {
		return s.Record.call() != *j.meeting
	}
	return compare(s, slices.MinFunc(j.running, compare)) == 0 && compare(s, slices.MaxFunc(j.running, compare)) < 0
}

// longer reports whether a host's activity has lasted longer than the experience of those who wait
// lets expect: most have done the same.
func (j *judge) longer(r *Record, waiting []*Sight) bool {
	usual, known := 0.0, 0
	for _, o := range waiting {
		if took, ok := o.Record.Took[r.Doing]; ok {
			usual = max(usual, took)
			known++
		}
	}
	return known*2 > len(waiting) && r.For > max(j.floor, factor*usual)
}

// stand is the finding of a run in which all hosts wait at the same place, after the reader has
// waited in vain.
func (j *judge) stand() []Finding {
	own := slices.IndexFunc(j.all, func(s Sight) bool { return s.Here })
	if own < 0 || slices.ContainsFunc(j.running, func(s *Sight) bool { return !s.waits() }) {
		return nil
	}
	s := &j.all[own]
	if s.Stand == 0 || s.Record.For <= s.Stand.Seconds() {
		return nil
	}
	return []Finding{{Host: -1, Cause: Nobody, For: s.Record.For, Sure: true,
		Text: fmt.Sprintf("no host stands out: %d of %d give a sign of life, and wait in %s for %s, after step %d",
			len(j.running), s.Record.Hosts, s.Record.doing(), seconds(s.Record.For), s.Record.Step)}}
}

// rules find what does not stop a run, by a text that says what is the matter with a host.
var rules = []struct {
	cause Cause
	text  func(j *judge, s *Sight) string
}{
	{Store, func(j *judge, s *Sight) string {
		switch silent := s.Silent.Seconds(); {
		case s.Lost != "":
			return "it cannot reach the place of the hosts' records, without which hosts do not see each other: " + s.Lost
		case s.Here && !j.company && slices.ContainsFunc(j.all, func(o Sight) bool { return o.Missing && o.Silent > 2*o.Limit }):
			return "it sees no record of any other host: give a place that all hosts share, or else no other host has come"
		case !s.Here && !s.Alive() && s.Process == "" && j.lively && float64(j.step-s.Record.Step) > ahead+between*s.Record.Rate:
			return fmt.Sprintf("its records ended %s ago, after step %d, while the run is at step %d: it cannot reach their place", seconds(silent), s.Record.Step, j.step)
		}
		return ""
	}},
	{Trouble, func(_ *judge, s *Sight) string { return s.Record.Trouble }},
	{Clock, func(j *judge, s *Sight) string {
		switch off := s.Skew.Abs().Round(time.Second); {
		case !j.clocks:
			return ""
		case s.Here && j.clock:
			return "its clock differs from that of most other hosts by more than a minute"
		case s.Here || j.clock || !s.Changed || off <= maxSkew:
			return ""
		case s.Skew < 0:
			return fmt.Sprintf("its clock is %s behind this one", off)
		default:
			return fmt.Sprintf("its clock is %s ahead of this one", off)
		}
	}},
	{Slow, func(j *judge, s *Sight) string {
		own, together := s.Record.shares()
		if !j.steady || own < most || together > 0.2 || s.Record.For >= begins*j.floor {
			return ""
		}
		others := 0 // that do not wait in most of their time
		for i := range j.all {
			if _, together := j.all[i].Record.shares(); &j.all[i] != s && together < most {
				others++
			}
		}
		kind := activity.Other
		if s.Record.Shares[activity.Input.String()] > own/2 {
			kind = activity.Input
		}
		// Each step takes it so long, not one of many.
		if part := s.Record.Took[kind.String()] * s.Record.Rate; others > (len(j.all)-1)/4 || part < 0.3 || part > 2 {
			return ""
		}
		what := Record{Doing: kind.String()}
		return fmt.Sprintf("it is slow: %.0f %% of its time goes into %s, while the others wait", 100*own, what.doing())
	}},
}

// shares are the parts of a host's time in its own work and in what is done together. Saves, hooks
// and the like, which not all hosts do alike, count for neither.
func (r *Record) shares() (own, together float64) {
	for k := range activity.Kinds {
		switch share := r.Shares[k.String()]; {
		case k.Together():
			together += share
		case k == activity.Input || k == activity.Other:
			own += share
		}
	}
	return own, together
}
