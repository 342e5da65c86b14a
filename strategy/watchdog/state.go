package watchdog

import (
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/strategy/goodput"
	"github.com/tpustrategy/tpustrategy/strategy/status"
)

// state is what the watchdog knows of its host at a time.
type state struct {
	record status.Record
	lasted time.Duration // of the activity under way
	bound  time.Duration
	marks  int64
	sums   [activity.Kinds]time.Duration
}

// look returns the state now.
func (w *Watchdog) look() state {
	w.mu.Lock()
	defer w.mu.Unlock()
	top, sums := &w.stack[len(w.stack)-1], w.sumsNow()
	s := state{record: w.record, lasted: top.own + max(w.now()-w.mark, 0), bound: w.bound(top), marks: w.marks, sums: sums}
	r := &s.record
	r.Time, r.Doing, r.Detail = w.opts.clock().UTC().Round(0), top.kind.String(), cut(top.name)
	r.For, r.Bound, r.Took = s.lasted.Seconds(), s.bound.Seconds(), byKind(w.took, time.Second)
	if r.State == status.Running && slices.ContainsFunc(r.Findings, stops) {
		r.State = status.Stuck
	}
	if w.opts.Host == 0 {
		h := w.history()
		r.History = &h
	}
	return s
}

// byKind are the times of the kinds of activities that took any, in units.
func byKind(all [activity.Kinds]time.Duration, unit time.Duration) map[string]float64 {
	times := map[string]float64{}
	for k, d := range all {
		if d > 0 {
			times[activity.Kind(k).String()] = d.Seconds() / unit.Seconds()
		}
	}
	return times
}

// sumsNow are the times that went into each kind of activity. It is called under mu.
func (w *Watchdog) sumsNow() [activity.Kinds]time.Duration {
	sums := w.sums
	sums[w.stack[len(w.stack)-1].kind] += max(w.now()-w.mark, 0)
	return sums
}

// History says where the time of the run has gone so far, over all of its lives as far as host 0
// knows them by its last record in Options.Place; elsewhere it is that of this life.
func (w *Watchdog) History() goodput.History {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.history()
}

// history is History. It is called under mu.
func (w *Watchdog) history() goodput.History {
	h := w.life
	h.Seen, h.To, h.Seconds = w.opts.clock().UTC().Round(0), w.record.Step, byKind(w.sumsNow(), time.Second)
	if w.past == nil {
		return h
	}
	if !w.resumed && h.To == 0 { // it is not known yet from where this life goes on
		h.From, h.To = w.past.To, w.past.To
	}
	return w.past.Then(h)
}

// sample is where a host was at a time.
type sample struct {
	at   time.Duration
	step int64
	sums [activity.Kinds]time.Duration
}

// window is the least time over which rates and shares are taken; they are of less than two.
const window = 5 * time.Second

// recent fills in the rate and the shares of the last seconds.
func (e *watch) recent(s *state, now time.Duration) {
	if next := (sample{now, s.record.Step, s.sums}); now-e.newer.at >= window || next.step < e.newer.step {
		e.older, e.newer = e.newer, next
	}
	from := e.older
	d := now - from.at
	if d <= 0 || s.record.Step < from.step {
		return
	}
	for k := range from.sums {
		from.sums[k] = s.sums[k] - from.sums[k]
	}
	r := &s.record
	r.Rate, r.Window, r.Shares = float64(r.Step-from.step)/d.Seconds(), d.Seconds(), byKind(from.sums, d)
}
