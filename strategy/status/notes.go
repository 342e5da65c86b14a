package status

import (
	"fmt"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/activity"
)

// maxSkew is how far a clock may be off.
const maxSkew = time.Minute

// minWindow is the time over which hosts are compared, in seconds.
const minWindow = 5

// notes finds what does not stop a run.
func (j *judge) notes() (found []Finding) {
	if j.here >= 0 && len(j.all) > 1 && !j.company && j.all[(j.here+1)%len(j.all)].Silent > 2*j.all[j.here].Limit {
		found = append(found, Finding{Host: j.here, Name: j.all[j.here].Record.Name, Cause: Store,
			Text: "it sees no record of any other host: give a place that all hosts share, or else no other host has come"})
	}
	for i := range j.all {
		s := &j.all[i]
		if s.Missing || s.Record.State == Ended {
			continue
		}
		f := Finding{Host: i, Name: s.Record.Name}
		if s.Record.Trouble != "" {
			f.Cause, f.Text = Trouble, s.Record.Trouble
			found = append(found, f)
		}
		if step := j.furthest(); !s.Alive() && s.Process == "" && i != j.here && step > s.Record.Step+ahead && j.lively() {
			f.Cause, f.For = Store, Number(s.Silent.Seconds())
			f.Text = fmt.Sprintf("its records ended %s ago, after step %d, while the run is at step %d: it cannot reach their place", seconds(s.Silent.Seconds()), s.Record.Step, step)
			found = append(found, f)
		}
		if off := s.Skew; s.Changed && i != j.here && (off > maxSkew || off < -maxSkew) && !j.clockHere() {
			ahead := "ahead of"
			if off < 0 {
				off, ahead = -off, "behind"
			}
			f.Cause, f.Text = Clock, fmt.Sprintf("its clock is %s %s this one", off.Round(time.Second), ahead)
			found = append(found, f)
		}
	}
	if j.clockHere() {
		f := Finding{Host: j.here, Cause: Clock, Text: "its clock differs from that of most other hosts by more than a minute"}
		if j.here >= 0 {
			f.Name = j.all[j.here].Record.Name
			found = append(found, f)
		}
	}
	return append(found, j.slow()...)
}

// ahead is how many steps a host may be ahead of another that is alive: those that are launched and
// not done.
const ahead = 16

// furthest is the furthest step of a host that is alive.
func (j *judge) furthest() (step int64) {
	for i := range j.all {
		if s := &j.all[i]; s.Alive() {
			step = max(step, s.Record.Step)
		}
	}
	return step
}

// clockHere reports whether it is the reader's own clock that differs from most.
func (j *judge) clockHere() bool {
	off, known := 0, 0
	for i := range j.all {
		if s := &j.all[i]; i != j.here && s.Changed && !s.Missing {
			known++
			if s.Skew > maxSkew || s.Skew < -maxSkew {
				off++
			}
		}
	}
	return known > 1 && off*2 > known
}

// slow finds the host for which the others wait in most of their time, though all go on.
func (j *judge) slow() []Finding {
	var waiting []float64 // the others' shares
	slowest, share := -1, 0.0
	for i := range j.all {
		s := &j.all[i]
		if s.Missing || s.Record.State != Running || !s.Alive() || s.Record.Window < minWindow || s.Record.Step == 0 {
			return nil
		}
		own, together := shares(&s.Record)
		if own > share && together < 0.2 && float64(s.Record.For) < begins*j.floor { // it goes on
			slowest, share = i, own
		}
		waiting = append(waiting, together)
	}
	if slowest < 0 || share < 0.6 || len(j.all) < 2 {
		return nil
	}
	waiting = slices.Delete(waiting, slowest, slowest+1)
	slices.Sort(waiting)
	if waiting[len(waiting)/4] < 0.6 { // most of the others
		return nil
	}
	r := &j.all[slowest].Record
	kind := activity.Other
	if r.Shares[activity.Input.String()] > r.Shares[activity.Other.String()] {
		kind = activity.Input
	}
	// Each step takes it so long, not one of many.
	if part := float64(r.Took[kind.String()] * r.Rate); part < 0.3 || part > 2 {
		return nil
	}
	what := Record{Doing: kind.String()}
	return []Finding{{Host: slowest, Name: r.Name, Cause: Slow,
		Text: fmt.Sprintf("it is slow: %.0f %% of its time goes into %s, while the others wait", 100*share, what.doing())}}
}

// shares are the parts of a host's time in its own work and in what is done together. Saves, hooks
// and the like, which not all hosts do alike, count for neither.
func shares(r *Record) (own, together float64) {
	for _, k := range []activity.Kind{activity.Input, activity.Other} {
		own += float64(r.Shares[k.String()])
	}
	for k := range activity.Kinds {
		if k.Together() {
			together += float64(r.Shares[k.String()])
		}
	}
	return own, together
}
