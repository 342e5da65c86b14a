package watchdog

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/strategy/goodput"
	"github.com/tpustrategy/tpustrategy/strategy/status"
)

// enough is how often something has to be done before its time counts: the first steps after a
// start or a resume are slow.
func enough(k activity.Kind) int64 {
	switch k {
	case activity.Input, activity.Launch, activity.Result, activity.Exchange:
		return 3
	}
	return 1
}

// bound is how long an activity may last. It is called under mu.
func (w *Watchdog) bound(f *frame) time.Duration {
	stepwise := f.kind == activity.Input || f.kind.Together()
	if w.opts.Deadline > 0 && stepwise {
		return w.opts.Deadline
	}
	switch f.kind {
	case activity.Other, activity.Compile: // the caller's code, and programs of any size: nothing is known
		return w.opts.First
	}
	usual, known := w.pace(f).usual(enough(f.kind))
	if !known {
		return w.opts.First
	}
	if f.kind.Together() && w.opts.Hosts > 1 && w.board == nil {
		return w.opts.First // the others may save: nothing says what they do
	}
	if f.kind == activity.Hook { // which may do something else now and then
		return max(12*w.opts.Floor, factor*usual)
	}
	return max(w.opts.Floor, factor*usual)
}

// standing is how long all hosts may wait at the same place.
func (w *Watchdog) standing(f *frame, bound time.Duration) time.Duration {
	if w.opts.Deadline > 0 || bound == w.opts.First {
		return bound
	}
	return max(6*w.opts.Floor, bound*5/2)
}

func stops(f status.Finding) bool { return f.Cause.Stops() }

// state is what the watchdog knows of its host at a time.
type state struct {
	record   status.Record
	lasted   time.Duration // of the activity under way
	bound    time.Duration
	standing time.Duration
	marks    int64
}

// look returns the state now.
func (w *Watchdog) look() state {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	top := &w.stack[len(w.stack)-1]
	s := state{lasted: top.own + max(now-w.mark, 0), marks: w.marks}
	s.bound = w.bound(top)
	s.standing = w.standing(top, s.bound)
	r := w.record
	r.Time, r.Doing, r.Detail = w.opts.clock().UTC().Round(0), top.kind.String(), short(top.name)
	r.For, r.Bound, r.Took = status.Number(s.lasted.Seconds()), status.Number(s.bound.Seconds()), map[string]status.Number{}
	for k, took := range w.took {
		if took > 0 {
			r.Took[activity.Kind(k).String()] = status.Number(took.Seconds())
		}
	}
	if r.State == status.Running && slices.ContainsFunc(r.Findings, stops) {
		r.State = status.Stuck
	}
	if w.opts.Host == 0 {
		h := w.history(now)
		r.History = &h
	}
	s.record = r
	return s
}

// History says where the time of the run has gone so far, over all of its lives as far as host 0
// knows them by its last record in Options.Place; elsewhere it is that of this life.
func (w *Watchdog) History() goodput.History {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.history(now)
}

// history is History. It is called under mu.
func (w *Watchdog) history(now time.Duration) goodput.History {
	h := w.life
	h.Seen, h.To, h.Seconds = w.opts.clock().UTC().Round(0), w.record.Step, map[string]float64{}
	for k, spent := range w.sumsAt(now) {
		if spent > 0 {
			h.Seconds[activity.Kind(k).String()] = spent.Seconds()
		}
	}
	if w.past == nil {
		return h
	}
	if !w.resumed && h.To == 0 { // it is not known yet from where this life goes on
		h.From, h.To = w.past.To, w.past.To
	}
	return w.past.Then(h)
}

// sumsAt are the times that went into each kind of activity. It is called under mu.
func (w *Watchdog) sumsAt(now time.Duration) [activity.Kinds]time.Duration {
	sums := w.sums
	sums[w.stack[len(w.stack)-1].kind] += max(now-w.mark, 0)
	return sums
}

// lives reads the last record of the life before, once. A place that cannot be read is tried again
// before the next record, which would be put over it.
func (w *Watchdog) lives(ctx context.Context) error {
	r, err := w.board.Get(ctx, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, status.ErrRecord) {
		return nil
	}
	if err == nil && r.History != nil {
		w.mu.Lock()
		w.past = r.History
		w.mu.Unlock()
	}
	return err
}

// sample is where a host was at a time.
type sample struct {
	at   time.Duration
	step int64
	sums [activity.Kinds]time.Duration
}

// window is the time over which rates and shares are taken.
const window = 6 * time.Second

// recent fills in the rate and the shares of the last seconds. Only the watching goroutine calls
// it, at each record.
func (w *Watchdog) recent(r *status.Record) {
	now := w.now()
	w.mu.Lock()
	s := sample{at: now, step: w.record.Step, sums: w.sumsAt(now)}
	w.mu.Unlock()
	for len(w.ring) > 1 && now-w.ring[1].at >= window {
		w.ring = w.ring[1:]
	}
	if len(w.ring) > 0 {
		from := w.ring[0]
		if d := (now - from.at).Seconds(); d > 0 && s.step >= from.step {
			r.Rate = status.Number(float64(s.step-from.step) / d)
			r.Window = status.Number(d)
			r.Shares = map[string]status.Number{}
			for k := range s.sums {
				if part := (s.sums[k] - from.sums[k]).Seconds() / d; part > 0.005 {
					r.Shares[activity.Kind(k).String()] = status.Number(min(part, 1))
				}
			}
		}
	}
	w.ring = append(w.ring, s)
}

// pause forgives this host a time in which it was stopped.
func (w *Watchdog) pause(d time.Duration) {
	now := w.now()
	w.mu.Lock()
	w.mark = min(w.mark+d, now)
	w.mu.Unlock()
	w.seen.Lock()
	w.view.Excuse(d, time.Now())
	w.seen.Unlock()
}
