package watchdog

import (
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/strategy/status"
)

// watch is what the goroutine has that looks at a host.
type watch struct {
	*Watchdog
	exchange
	view status.View // of the hosts, by their records

	// An episode is a time in which this host does not move.
	marks    int64 // of the host, when the episode began
	reported []status.Finding
	sure     time.Duration // when a report was sure first; 0 is not yet

	noted        []status.Finding // what goes on although something is the matter, in the last look
	over, exited bool             // the contexts are cancelled, and the process was to end
	ended        time.Duration    // when they were
	older, newer sample
}

// watch looks at the host until the watchdog is closed.
func (w *Watchdog) watch() {
	defer close(w.left)
	e := &watch{Watchdog: w, exchange: exchange{answers: make(chan answer, 1)}, view: status.View{Run: w.opts.Run, Hosts: 1}}
	if w.board != nil { // or else it sees itself alone
		e.view.Hosts, e.view.MinSilence = w.opts.Hosts, max(w.opts.Floor, 3*w.interval(false))
	}
	e.view.See(nil, time.Now(), time.Now())
	tick := w.opts.tick()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := w.now()
	for {
		select {
		case <-w.done:
			e.farewell(w.look().record, storeWait)
			if w.owned {
				_ = w.board.Close()
			}
			return
		case a := <-e.answers:
			e.take(a)
			continue
		case <-ticker.C:
		}
		now := w.now()
		if gap := now - last - tick; gap > w.opts.paused() {
			e.pause(gap) // the process was stopped, or had no processor
		}
		last = now
		w.mu.Lock()
		w.looked = now
		w.mu.Unlock()
		s := w.look()
		if s.marks != e.marks {
			e.marks, e.reported, e.sure = s.marks, nil, 0
			s.record.Findings = slices.DeleteFunc(slices.Clone(s.record.Findings), stops)
		}
		e.recent(&s, now)
		e.judge(s, now)
		e.meet(s, now)
		e.finish(now)
	}
}

// pause forgives all hosts a time in which this one was stopped.
func (e *watch) pause(d time.Duration) {
	e.mu.Lock()
	e.mark = min(e.mark+d, e.now())
	e.mu.Unlock()
	e.view.Excuse(d, time.Now())
}

// judge reports who does not go on, and what else is the matter.
func (e *watch) judge(s state, now time.Duration) {
	found := e.view.Judge(time.Now(), e.opts.Floor, e.own(s, now))
	stopping := slices.DeleteFunc(slices.Clone(found), func(f status.Finding) bool { return !stops(f) })
	notes := slices.DeleteFunc(slices.Clone(found), stops)
	certain := slices.ContainsFunc(stopping, func(f status.Finding) bool { return f.Sure })
	sure := certain && s.lasted > e.opts.Floor/2
	switch {
	case !certain:
		e.sure = 0
	case sure && e.sure == 0:
		e.sure = now
	}
	e.mu.Lock()
	e.record.Findings = found
	if sure {
		e.suspected, e.suspectAt = stopping, now
	}
	e.mu.Unlock()
	fresh := beside(stopping, e.reported)
	e.reported = append(e.reported, fresh...)
	e.report(s, fresh)
	// What goes on although something is the matter is said once, until it changes.
	e.report(s, beside(notes, e.noted))
	e.noted = notes
}

func stops(f status.Finding) bool { return f.Cause.Stops() }

// beside are the findings of which the others have none with the same host and cause.
func beside(all, known []status.Finding) (fresh []status.Finding) {
	for _, f := range all {
		if !slices.ContainsFunc(known, func(o status.Finding) bool { return o.Host == f.Host && o.Cause == f.Cause }) {
			fresh = append(fresh, f)
		}
	}
	return fresh
}

// own is what this host knows of itself.
func (e *watch) own(s state, now time.Duration) *status.Own {
	own := &status.Own{Record: s.record, Stand: e.opts.stand(s.bound), First: e.opts.First}
	if e.lost != nil && now-e.lostAt >= e.opts.Floor/2 {
		own.Lost = short(e.lost)
	}
	return own
}

// grace is the time from the end of the contexts to that of the process.
const grace = 10 * time.Second

// finish ends the contexts of a host that has not moved for too long, and then the process.
func (e *watch) finish(now time.Duration) {
	if e.sure > 0 && !e.over && now-e.sure >= e.opts.Patience {
		e.over, e.ended = true, now
		err := e.stuckError(e.look(), e.suspected) // which this goroutine alone writes
		e.opts.Logger.Error("watchdog: the run does not go on: its context ends", "error", err)
		e.cancel(err)
	}
	if !e.over || e.exited || now-e.ended < min(grace, e.opts.Patience) {
		return
	}
	e.exited = true
	if e.opts.Exit == nil {
		e.opts.Logger.Error("watchdog: the wait cannot be ended, and the process goes on; set watchdog.Options.Exit to os.Exit to end it")
		return
	}
	e.opts.Logger.Error("watchdog: the wait cannot be ended: the process ends", "code", ExitCode)
	r := e.look().record
	r.State, r.Error = status.Ended, short(e.Err())
	e.farewell(r, time.Second)
	e.opts.Exit(ExitCode)
}
