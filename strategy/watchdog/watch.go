package watchdog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/strategy/status"
)

// machine is the machine of this process.
var machine = sync.OnceValue(status.Machine)

// tick is the time between two looks.
func (o *Options) tick() time.Duration {
	return min(max(o.Floor/20, 20*time.Millisecond), 250*time.Millisecond)
}

// paused is how much later than a tick the next one comes if the process was stopped.
func (o *Options) paused() time.Duration { return max(o.Floor/5, 4*o.tick()) }

// episode is a time in which this host does not move.
type episode struct {
	marks    int64 // of the host, when the episode began
	reported []status.Finding
	sure     time.Duration // when a report was sure first; 0 is not yet
	over     bool          // the contexts are cancelled
	exited   bool
	ended    time.Duration // when they were
}

// watch looks at the host until the watchdog is closed.
func (w *Watchdog) watch() {
	tick := w.opts.tick()
	interval := w.opts.interval(w.board)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var e episode
	var noted []status.Finding
	var past status.Record // the last one that was put
	last, put, judged := w.now(), time.Duration(-1), w.now()
	for {
		select {
		case <-w.done:
			w.put(w.look().record)
			close(w.records)
			return
		case <-ticker.C:
		}
		now := w.now()
		if gap := now - last - tick; gap > w.opts.paused() {
			w.pause(gap) // the process was stopped, or had no processor
		}
		last = now
		w.mu.Lock()
		w.looked = now
		w.mu.Unlock()
		s := w.look()
		s.record.Rate, s.record.Window, s.record.Shares = past.Rate, past.Window, past.Shares
		if s.marks != e.marks {
			e = episode{marks: s.marks, over: e.over, ended: e.ended, exited: e.exited}
			w.accuse(nil, true)
		}
		hurry := s.lasted > w.opts.Floor/2
		w.hurried.Store(hurry)
		if put < 0 || now-put >= interval || hurry && now-put >= min(interval, time.Second) {
			put = now
			w.recent(&s.record)
			past = s.record
			w.put(s.record)
		}
		if now-judged >= min(interval, time.Second)/2 {
			judged = now
			noted = w.judge(&e, s, noted, now)
		}
		w.finish(&e, now)
	}
}

// judge reports who does not go on, and what else is the matter.
func (w *Watchdog) judge(e *episode, s state, noted []status.Finding, now time.Duration) []status.Finding {
	var found []status.Finding
	sights := w.sights(s)
	if sights != nil {
		found = status.Judge(sights, w.opts.Host, w.opts.Floor)
	}
	mine := func(f status.Finding) bool { return f.Host == w.opts.Host && stops(f) }
	if s.lasted > s.bound && !slices.ContainsFunc(found, mine) && !s.record.Kind().Together() {
		found = append(status.Judge([]status.Sight{{Record: s.record}}, 0, w.opts.Floor), found...)
	}
	if !slices.ContainsFunc(found, stops) && s.lasted > s.standing &&
		s.record.Kind().Together() && w.together(sights, s.lasted) {
		found = append(found, status.Stand(sights, &s.record))
	}
	found = append(found, w.store(now)...)

	stopping := slices.DeleteFunc(slices.Clone(found), func(f status.Finding) bool { return !stops(f) })
	notes := slices.DeleteFunc(slices.Clone(found), stops)
	sure := slices.ContainsFunc(stopping, func(f status.Finding) bool { return f.Sure })
	switch {
	case !sure:
		e.sure = 0
	case e.sure == 0 && s.lasted > w.opts.Floor/2:
		e.sure = now
	}
	w.accuse(found, false)
	if sure && s.lasted > w.opts.Floor/2 {
		w.mu.Lock()
		w.suspected, w.suspectAt = stopping, now
		w.mu.Unlock()
	}
	if fresh := newOf(stopping, e.reported); len(fresh) > 0 {
		e.reported = append(e.reported, fresh...)
		w.report(s, fresh)
	}
	// What goes on although something is the matter is said once, until it changes.
	if fresh := newOf(notes, noted); len(fresh) > 0 {
		w.report(s, fresh)
	}
	return notes
}

// newOf are the findings of which the others have none with the same host and cause.
func newOf(all, old []status.Finding) (fresh []status.Finding) {
	for _, f := range all {
		if !slices.ContainsFunc(old, func(o status.Finding) bool { return o.Host == f.Host && o.Cause == f.Cause }) {
			fresh = append(fresh, f)
		}
	}
	return fresh
}

// together reports whether all hosts that are alive wait for each other. Of a host without a record
// nothing is known.
func (w *Watchdog) together(all []status.Sight, lasted time.Duration) bool {
	if lasted < w.opts.First && slices.ContainsFunc(all, func(s status.Sight) bool { return s.Missing }) {
		return false
	}
	return !slices.ContainsFunc(all, func(s status.Sight) bool {
		return s.Alive() && s.Record.State != status.Ended && !s.Record.Kind().Together()
	})
}

// sights are the hosts as this one sees them now, or nil where it sees itself alone.
func (w *Watchdog) sights(s state) []status.Sight {
	if w.board == nil || w.opts.Hosts == 1 {
		return nil
	}
	w.seen.Lock()
	all := w.view.Sights(time.Now())
	w.seen.Unlock()
	own := &all[w.opts.Host]
	own.Record, own.Missing, own.Process = s.record, false, ""
	return all
}

// store says that the place of the records cannot be reached.
func (w *Watchdog) store(now time.Duration) []status.Finding {
	w.seen.Lock()
	defer w.seen.Unlock()
	err, at := w.putErr, w.putAt
	if err == nil {
		err, at = w.readErr, w.readAt
	}
	if err == nil || now-at < w.opts.Floor/2 {
		return nil
	}
	return []status.Finding{{Host: w.opts.Host, Name: w.opts.Name, Cause: status.Store, For: status.Number((now - at).Seconds()),
		Text: "it cannot reach the place of the hosts' records, without which hosts do not see each other: " + short(err.Error())}}
}

func (w *Watchdog) accuse(found []status.Finding, moved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if moved {
		found = slices.DeleteFunc(slices.Clone(w.record.Findings), stops)
	}
	w.record.Findings = found
}

// finish ends the contexts of a host that has not moved for too long, and then the process.
func (w *Watchdog) finish(e *episode, now time.Duration) {
	if e.sure > 0 && !e.over && now-e.sure >= w.opts.Patience {
		e.over, e.ended = true, now
		err := w.stuckError(w.look(), w.suspected) // which this goroutine alone writes
		w.opts.Logger.Error("watchdog: the run does not go on: its context ends", "error", err)
		w.cancel(err)
	}
	if e.over && !e.exited && now-e.ended >= w.opts.Grace {
		e.exited = true
		if w.opts.Exit == nil {
			w.opts.Logger.Error("watchdog: the wait cannot be ended, and the process goes on; set watchdog.Options.Exit to os.Exit to end it")
			return
		}
		w.opts.Logger.Error("watchdog: the wait cannot be ended: the process ends", "code", ExitCode)
		r := w.look().record
		r.State, r.Error = status.Ended, short(w.Err().Error())
		w.put(r)
		time.Sleep(lastRecord)
		w.opts.Exit(ExitCode)
	}
}

// put hands a record to the goroutine that writes: the newest counts.
func (w *Watchdog) put(r status.Record) {
	if w.board == nil {
		return
	}
	w.sequence++
	r.Sequence = w.sequence
	select {
	case <-w.records:
	default:
	}
	w.records <- &r
}

// lastRecord is the time that the record of a process's end has to be put.
const lastRecord = time.Second

// storeWait bounds a request to the place of the records.
const storeWait = 10 * time.Second

// write puts the records.
func (w *Watchdog) write() {
	if w.opts.Host == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), storeWait)
		_ = w.board.Clear(ctx, w.opts.Hosts)
		cancel()
	}
	known := w.opts.Host > 0
	for r := range w.records {
		ctx, cancel := context.WithTimeout(context.Background(), storeWait)
		var err error
		if !known {
			if err = w.lives(ctx); err == nil {
				known = true
				h := w.History()
				r.History = &h
			}
		}
		if err == nil {
			err = w.board.Put(ctx, r)
		}
		cancel()
		w.failed(&w.putErr, &w.putAt, err)
	}
}

// failed remembers since when something fails.
func (w *Watchdog) failed(of *error, at *time.Duration, err error) {
	w.seen.Lock()
	defer w.seen.Unlock()
	if err != nil && *of == nil {
		*at = w.now()
	}
	*of = err
}

// calm is the time between two looks at the others' records while all is well. More hosts look more
// rarely: each reads the records of all.
func (w *Watchdog) calm() time.Duration {
	interval := w.opts.interval(w.board)
	if w.hurried.Load() {
		return min(interval, time.Second) * time.Duration(max(w.opts.Hosts/64, 1))
	}
	return interval * time.Duration(max(w.opts.Hosts/8, 1))
}

// read reads the others' records.
func (w *Watchdog) read() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), storeWait)
		began := w.now()
		all, unreadable, err := w.board.Read(ctx)
		cancel()
		if err == nil && len(all) == 0 && len(unreadable) > 0 {
			err = errors.Join(unreadable...)
		}
		w.failed(&w.readErr, &w.readAt, err)
		w.seen.Lock()
		if took := w.now() - began; err != nil || took > w.opts.Floor/5 {
			w.view.Excuse(took, time.Now()) // the place was slow, not the hosts
		}
		if err == nil {
			w.view.See(all, time.Now(), w.opts.clock())
		}
		w.seen.Unlock()
		for began := w.now(); ; {
			left := w.calm() - (w.now() - began)
			if left <= 0 {
				break
			}
			select {
			case <-w.done:
				return
			case <-time.After(min(left, w.opts.tick())):
			}
		}
	}
}
