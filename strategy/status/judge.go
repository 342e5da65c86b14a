package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/activity"
)

// Outside is the host of a reader that is none, for [Judge].
const Outside = -1

// minWait is the wait of a host after which it is asked whom it waits for.
const minWait = 5 * time.Second

// Judge says which hosts do not go on, and which are slow, in trouble, or have a wrong clock. Here
// is the host that asks, whose own record is the newest of all, or [Outside]. Without an argument
// floor, a wait of less than 5 seconds is none.
//
// A host is named if others wait for it and it is silent, has left, or is in an activity for longer
// than that may last: by its own experience, or, where all hosts do the same, by that of those who
// wait. That hosts take long, and all are at the same place, is no finding; see [Stand].
func Judge(all []Sight, here int, floor ...time.Duration) []Finding {
	j := judge{all: all, here: here, floor: minWait.Seconds(), company: company(all, here)}
	if len(floor) > 0 {
		j.floor = floor[0].Seconds()
	}
	return append(j.stuck(), j.notes()...)
}

type judge struct {
	company bool // the place has a record of another host of the run
	all     []Sight
	here    int
	floor   float64
}

// stuck finds who stops the run: those that are not there, or else those that are behind.
func (j *judge) stuck() []Finding {
	waits, soon := j.anyWaits(j.floor), j.anyWaits(j.floor/2)
	var found []Finding
	for i := range j.all {
		r := &j.all[i].Record
		if gaveUp := r.State == Ended && slices.ContainsFunc(r.Findings, stops); gaveUp {
			for _, f := range r.Findings { // it knew who it was
				if stops(f) && waits && !slices.ContainsFunc(found, func(o Finding) bool { return o.Host == f.Host }) {
					f.Sure = true
					found = append(found, f)
				}
			}
			continue
		}
		if f, absent := j.absent(i); absent && (waits || soon && j.all[i].Process != "") {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return j.behind()
	}
	if !j.lively() { // a store that nobody reaches makes all hosts silent
		return nil
	}
	return found
}

func stops(f Finding) bool { return f.Cause.Stops() }

// absent returns the finding of a host that is not there any more.
func (j *judge) absent(i int) (Finding, bool) {
	s := &j.all[i]
	r := &s.Record
	f := Finding{Host: i, Name: r.Name, Sure: true}
	switch {
	case i == j.here:
		return f, false
	case s.Missing && j.here >= 0 && !j.company:
		return f, false // see notes
	case s.Missing:
		f.Cause, f.Text, f.For = Missing, "it has given no sign of life in this run", Number(s.Silent.Seconds())
		return f, s.Silent > s.Limit
	case r.State == Ended:
		f.Cause, f.Text = Left, fmt.Sprintf("it left the loop after step %d", r.Step)
		if r.Error != "" {
			f.Text += ": " + r.Error
		}
		return f, true
	case s.Alive():
		return f, false
	}
	f.Cause, f.For = Silent, Number(s.Silent.Seconds())
	f.Text = fmt.Sprintf("no sign of life for %s; it was last heard of after step %d, in %s", seconds(s.Silent.Seconds()), r.Step, r.doing())
	if s.Process != "" {
		f.Text = fmt.Sprintf("its process %d %s: %s", r.PID, s.Process, f.Text)
	}
	return f, true
}

// company reports whether any host but here has a record. A record may name many hosts that have
// none: it is asked once for all of them.
func company(all []Sight, here int) bool {
	for i := range all {
		if i != here && !all[i].Missing {
			return true
		}
	}
	return false
}

// lively reports whether the place of the records shows any host alive, but for the reader.
func (j *judge) lively() bool {
	others, known := 0, 0
	for i := range j.all {
		s := &j.all[i]
		if i == j.here {
			if s.Changed && s.Alive() {
				return true // the reader sees its own records
			}
			continue
		}
		others++
		if !s.Missing && (s.Changed && s.Alive() || s.Process != "") {
			known++
		}
	}
	return known > 0 || others == 0
}

// anyWaits reports whether some host waits for others for so many seconds.
func (j *judge) anyWaits(least float64) bool {
	return slices.ContainsFunc(j.all, func(s Sight) bool { return !s.Missing && s.waiting() && float64(s.Record.For) >= least })
}

// waiting reports whether the host is where others have to come.
func (s *Sight) waiting() bool {
	return !s.Missing && s.Record.State != Ended && s.Record.Kind().Together()
}

// doing says what a host does, such as `exchange "barrier x"`.
func (r *Record) doing() string {
	what := r.Doing
	switch r.Kind() {
	case activity.Input, activity.Result:
		what = "the wait for its " + what
	case activity.Launch, activity.Exchange, activity.Hook:
		what = "the " + what
	case activity.Save, activity.Restore:
		what = "its " + what
	case activity.Setup:
		what = "its start"
	case activity.Compile:
		what = "the compiler"
	case activity.Other:
		what = "its own code"
	}
	if r.Detail != "" {
		what += fmt.Sprintf(" %q", r.Detail)
	}
	return what
}

// at orders the places of hosts.
func at(r *Record) [2]int64 { return [2]int64{r.Step, r.Turn} }

func before(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }

// behind finds the hosts that others have passed and wait for, or that are elsewhere.
func (j *judge) behind() (found []Finding) {
	var running []int
	for i := range j.all {
		if s := &j.all[i]; s.Alive() && s.Record.State != Ended {
			running = append(running, i)
		}
	}
	if len(running) == 0 {
		return nil
	}
	last, first := j.ends(running)
	most := j.most(running)
	for _, i := range running {
		s := &j.all[i]
		r := &s.Record
		others := j.waiters(i)
		over := r.Bound > 0 && r.For > r.Bound
		switch {
		case r.Kind().Together():
			if len(others) == 0 || float64(r.For) < j.floor || r.Kind() != activity.Exchange && !over {
				continue
			}
			// It is in another call than most, or the last one where there is no most.
			if most != nil && r.call() == *most || most == nil && (before(last, first) == 0 || at(r) != last) {
				continue
			}
			over = true
		case over: // by its own experience
			if k := r.Kind(); k != activity.Input { // which a save or an evaluation does not know well
				over = float64(r.For) > long*j.floor
			}
		case len(others) > 0 && i != 0 && j.longer(s, others): // host 0 alone writes files
		default:
			continue
		}
		found = append(found, j.found(i, others, over))
	}
	if len(found) == len(running) && len(running) > 2 {
		return nil // none stands out
	}
	return found
}

// waiters are the hosts that wait while host i is not where they are.
func (j *judge) waiters(i int) (all []int) {
	mine := &j.all[i].Record
	for k := range j.all {
		s := &j.all[k]
		if k == i || !s.Alive() || !s.waiting() || float64(s.Record.For) < begins*j.floor {
			continue
		}
		if before(at(&s.Record), at(mine)) > 0 || mine.Kind().Together() && s.Record.call() != mine.call() {
			all = append(all, k)
		}
	}
	return all
}

// ends are the last place of the hosts, and the first.
func (j *judge) ends(running []int) (last, first [2]int64) {
	last, first = at(&j.all[running[0]].Record), at(&j.all[running[0]].Record)
	for _, i := range running {
		p := at(&j.all[i].Record)
		if before(p, last) < 0 {
			last = p
		}
		if before(p, first) > 0 {
			first = p
		}
	}
	return last, first
}

// call is a call in which hosts meet.
type call struct {
	step          int64
	doing, detail string
}

func (r *Record) call() call { return call{r.Step, r.Doing, r.Detail} }

// most is the call in which more than half of the hosts wait for the others, or nil.
func (j *judge) most(running []int) *call {
	count := map[call]int{}
	for _, i := range running {
		s := &j.all[i]
		if c := s.Record.call(); s.waiting() && float64(s.Record.For) >= begins*j.floor {
			if count[c]++; count[c]*2 > len(running) {
				return &c
			}
		}
	}
	return nil
}

// longer reports whether a host's activity has lasted longer than the others' experience lets
// expect: they have done the same, and wait.
func (j *judge) longer(s *Sight, others []int) bool {
	var most Number
	known := 0
	for _, k := range others {
		if took, ok := j.all[k].Record.Took[s.Record.Doing]; ok {
			most = max(most, took)
			known++
		}
	}
	r := &s.Record
	switch r.Kind() {
	case activity.Compile, activity.Hook, activity.Other, activity.Input, activity.Setup, activity.Restore, activity.Save:
	default:
		return false
	}
	return known*2 > len(others) && float64(r.For) > max(j.floor, factor*float64(most))
}

// begins is the part of a floor after which a wait is one.
const begins = 0.6

// long is how many floors something other than a step lasts before it is sure not to end.
const long = 12

// factor is how many times as long as its usual time an activity may last.
const factor = 4

// found is the finding of a host that does not go on.
func (j *judge) found(i int, waiters []int, sure bool) Finding {
	s := &j.all[i]
	r := &s.Record
	f := Finding{Host: r.Host, Name: r.Name, Cause: causes[r.Kind()], For: r.For, Sure: sure}
	f.Text = fmt.Sprintf("in %s for %s, after step %d", r.doing(), seconds(float64(r.For)), r.Step)
	if len(waiters) > 0 {
		w := &j.all[waiters[0]].Record
		f.Text += fmt.Sprintf("; %s, in %s after step %d", plural(len(waiters), "host waits", "hosts wait"), w.doing(), w.Step)
	}
	if r.Trouble != "" {
		f.Text += "; its trouble: " + r.Trouble
	}
	return f
}

var causes = map[activity.Kind]Cause{
	activity.Other: InCode, activity.Input: InInput, activity.Launch: InLaunch, activity.Result: InResult, activity.Exchange: InExchange,
	activity.Compile: InCompile, activity.Save: InSave, activity.Restore: InRestore, activity.Hook: InHook, activity.Setup: InSetup,
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// Stand is the finding of a run in which all hosts wait at the same place, after the host that
// asks has waited in vain.
func Stand(all []Sight, r *Record) Finding {
	alive := 0
	for i := range all {
		if all[i].Alive() {
			alive++
		}
	}
	f := Finding{Host: -1, Cause: Nobody, For: r.For, Sure: true}
	f.Text = fmt.Sprintf("no host stands out: %d of %d give a sign of life, and wait in %s for %s, after step %d",
		max(alive, 1), r.Hosts, r.doing(), seconds(float64(r.For)), r.Step)
	return f
}
