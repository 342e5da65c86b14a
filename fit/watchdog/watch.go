package watchdog

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/storage"
)

// heard is the result of an access to the board.
type heard struct {
	read bool // all contains the current records
	all  []Record
	err  error
}

// storeWait limits an access to the board.
const storeWait = 10 * time.Second

// talk writes this host's records and reads the records of the other hosts until the watchdog is
// closed. It runs in its own goroutine, so that a slow store does not delay the checks. The more
// hosts there are, the less often each host reads, because it reads all records; a host that waits
// reads more often.
func (w *Watchdog) talk() {
	ticker := time.NewTicker(w.opts.interval())
	defer ticker.Stop()
	var sequence int64
	var before []byte // record of the earlier life
	inherited, cleared, lost := false, false, false
	put := func(ctx context.Context) (err error) {
		if !inherited { // the first put replaces the record of the earlier life
			if before, err = w.inherit(ctx); err != nil {
				return err // the next put tries again
			}
			inherited = true
		}
		r, _ := w.look()
		if !cleared && (r.Step > 0 || r.State == Ended) { // the life was accepted
			_ = w.board.clear(ctx, w.opts.Hosts)
			cleared = true
		}
		sequence++
		r.Sequence = sequence
		return w.board.Put(ctx, &r)
	}
	for n := 0; w.open.Err() == nil; n++ {
		r, _ := w.look()
		waits, among := r.For > w.opts.MinTimeout.Seconds()/2, 8
		if waits {
			among = 64
		}
		if waits || n%2 == 0 || !storage.IsURL(w.board.store.String()) { // in a store each access is a request
			ctx, cancel := context.WithTimeout(w.open, storeWait)
			h := heard{err: put(ctx)}
			if w.opts.Hosts > 1 && (lost || n%max(w.opts.Hosts/among, 1) == 0) {
				all, unreadable, err := w.board.Read(ctx, w.opts.Hosts)
				if len(all) == 0 && len(unreadable) > 0 {
					err = unreadable[0]
				}
				h.all, h.read, h.err = all, err == nil, cmp.Or(h.err, err)
			}
			cancel()
			lost = h.err != nil
			select {
			case w.heard <- h:
			case <-w.open.Done():
			}
		}
		select {
		case <-ticker.C:
		case <-w.open.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeWait)
	defer cancel()
	withdrawn, changed, err := w.isWithdrawn(), inherited, error(nil)
	if withdrawn && !inherited {
		before, err = w.inherit(ctx)
	}
	switch {
	case !withdrawn || w.opts.Host == 0 && before == nil && err == nil:
		_ = put(ctx)
	case changed:
		_ = w.board.putBack(ctx, w.opts.Host, before)
	}
	if w.opts.Place != "" {
		_ = w.board.Close()
	}
}

// inherit returns this host's record of the earlier life, or nil. On host 0 it continues the
// history of that life.
func (w *Watchdog) inherit(ctx context.Context) (record []byte, err error) {
	record, err = w.board.read(ctx, w.opts.Host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if w.opts.Host != 0 { // only the record of host 0 has a history, which must not be lost
		return record, nil
	}
	if err != nil {
		return nil, err
	}
	if before, err := parse(record); err == nil && before.Host == 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.past = before.History
	}
	return record, nil
}

// grace is the time between the end of the contexts and the end of the process.
const grace = 10 * time.Second

// watch checks the host until the watchdog is closed or the process must end.
func (w *Watchdog) watch() (exits bool) {
	o := &w.opts
	view := View{given: true, MinSilence: max(o.MinTimeout, 3*o.interval())}
	if view.follow(o.Run, o.Hosts); w.board == nil {
		view.follow(o.Run, 1) // only this host is known
	}
	var (
		lost        error // error of the access to the board, since lostAt
		lostAt      time.Duration
		said        []Finding     // reported findings
		move        int64         // value of moves when the host last made progress
		since, over time.Duration // when the run was first sure to be stuck, and when the contexts were ended; 0 if not yet
	)
	ticker := time.NewTicker(o.tick())
	defer ticker.Stop()
	for {
		select {
		case <-w.open.Done():
			return false
		case h := <-w.heard:
			now := w.tick()
			if h.err != nil && lost == nil {
				lostAt = now
			}
			if lost = h.err; h.read {
				view.see(h.all, now, o.wall())
			} else if lost != nil {
				view.read = now
			}
			continue
		case <-ticker.C:
		}
		now := w.tick()
		r, moves := w.look()
		hosts := view.now()
		own := &hosts[min(o.Host, len(hosts)-1)]
		*own = Host{Record: r, own: true, changed: own.changed, Alive: r.State != Ended}
		missing := slices.ContainsFunc(hosts, func(h Host) bool { return h.Missing })
		own.stand = o.stand(time.Duration(r.Bound*float64(time.Second)), missing).Seconds()
		if lost != nil && now-lostAt >= o.MinTimeout/2 {
			own.lost = short(lost)
		}
		found := judge(hosts, o.MinTimeout.Seconds())
		stopping := slices.DeleteFunc(slices.Clone(found), func(f Finding) bool { return !stops(f) })
		certain := slices.ContainsFunc(stopping, sure)
		lasts := certain && r.For > o.MinTimeout.Seconds()/2
		w.mu.Lock()
		w.record.Findings = found
		if lasts {
			w.suspected, w.suspectAt = stopping, now
		}
		w.mu.Unlock()
		// A finding that stops the run is reported once while the host makes no progress. Other
		// findings are reported once until they change.
		if moves != move {
			move, since = moves, 0
			said = slices.DeleteFunc(said, stops)
		}
		w.report(unlike(found, said))
		said = slices.DeleteFunc(said, func(f Finding) bool { return !stops(f) })
		said = append(said, unlike(found, said)...)
		switch {
		case !certain:
			since = 0
		case lasts && since == 0:
			since = now
		}
		switch {
		case w.Err() == nil && since > 0 && now-since >= o.CancelDelay:
			over = now
			w.cancel(w.stuckError(stopping))
			o.Logger.Error("watchdog: the run does not go on: its context ends", "error", w.Err())
		case over > 0 && now-over >= min(grace, o.CancelDelay):
			if over = 0; o.Exit == nil {
				o.Logger.Error("watchdog: the wait cannot be ended, and the process goes on; set watchdog.Options.Exit to os.Exit to end it")
				continue
			}
			o.Logger.Error("watchdog: the wait cannot be ended: the process ends", "code", ExitCode)
			return true
		}
	}
}
