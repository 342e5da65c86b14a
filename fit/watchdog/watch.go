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

// storeResult is the result of an access to the board.
type storeResult struct {
	isRead  bool // hosts contains the current records
	records []Record
	err     error
}

// storeTimeout limits an access to the board.
const storeTimeout = 10 * time.Second

// exchangeRecords writes this host's records and reads the records of the other hosts until the watchdog is
// closed. It runs in its own goroutine, so that a slow store does not delay the checks. The more
// hosts there are, the less often each host reads, because it reads all records; a host that waits
// reads more often.
func (w *Watchdog) exchangeRecords() {
	ticker := time.NewTicker(w.opts.recordInterval())
	defer ticker.Stop()
	var sequence int64
	var before []byte // record of the earlier life
	inherited, cleared, lost := false, false, false
	put := func(ctx context.Context) (err error) {
		if !inherited { // the first put replaces the record of the earlier life
			if before, err = w.readPrevious(ctx); err != nil {
				return err // the next put tries again
			}
			inherited = true
		}
		r, _ := w.currentRecord()
		if !cleared && (r.Step > 0 || r.State == Ended) { // the life was accepted
			_ = w.records.removeStale(ctx, w.opts.Hosts)
			cleared = true
		}
		sequence++
		r.Sequence = sequence
		return w.records.Put(ctx, &r)
	}
	for n := 0; w.openContext.Err() == nil; n++ {
		r, _ := w.currentRecord()
		waits, among := r.Duration > w.opts.MinTimeout.Seconds()/2, 8
		if waits {
			among = 64
		}
		if waits || n%2 == 0 || !storage.IsURL(w.records.store.String()) { // in a store each access is a request
			ctx, cancel := context.WithTimeout(w.openContext, storeTimeout)
			h := storeResult{err: put(ctx)}
			if w.opts.Hosts > 1 && (lost || n%max(w.opts.Hosts/among, 1) == 0) {
				all, unreadable, err := w.records.ReadAll(ctx, w.opts.Hosts)
				if len(all) == 0 && len(unreadable) > 0 {
					err = unreadable[0]
				}
				h.records, h.isRead, h.err = all, err == nil, cmp.Or(h.err, err)
			}
			cancel()
			lost = h.err != nil
			select {
			case w.storeResults <- h:
			case <-w.openContext.Done():
			}
		}
		select {
		case <-ticker.C:
		case <-w.openContext.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	withdrawn, changed, err := w.hasWithdrawn(), inherited, error(nil)
	if withdrawn && !inherited {
		before, err = w.readPrevious(ctx)
	}
	switch {
	case !withdrawn || w.opts.Host == 0 && before == nil && err == nil:
		_ = put(ctx)
	case changed:
		_ = w.records.restore(ctx, w.opts.Host, before)
	}
	if w.opts.Dir != "" {
		_ = w.records.Close()
	}
}

// readPrevious returns this host's record of the earlier life, or nil. On host 0 it continues the
// joinedHistory of that life.
func (w *Watchdog) readPrevious(ctx context.Context) (record []byte, err error) {
	record, err = w.records.readEncoded(ctx, w.opts.Host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if w.opts.Host != 0 { // only the record of host 0 has a history, which must not be lost
		return record, nil
	}
	if err != nil {
		return nil, err
	}
	if before, err := parseRecord(record); err == nil && before.Host == 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pastHistory = before.History
	}
	return record, nil
}

// exitDelay is the time between the end of the contexts and the end of the process.
const exitDelay = 10 * time.Second

// monitor checks the host until the watchdog is closed or the process must end.
func (w *Watchdog) monitor() (exits bool) {
	o := &w.opts
	view := Monitor{fixedRun: true, MinSilence: max(o.MinTimeout, 3*o.recordInterval())}
	if view.setRun(o.Run, o.Hosts); w.records == nil {
		view.setRun(o.Run, 1) // only this host is known
	}
	var (
		lost        error // error of the access to the board, since lostAt
		lostAt      time.Duration
		said        []Finding     // reported findings
		move        int64         // value of moves when the host last made progress
		since, over time.Duration // when the run was first sure to be stuck, and when the contexts were ended; 0 if not yet
	)
	ticker := time.NewTicker(o.checkInterval())
	defer ticker.Stop()
	for {
		select {
		case <-w.openContext.Done():
			return false
		case h := <-w.storeResults:
			now := w.recordCheck()
			if h.err != nil && lost == nil {
				lostAt = now
			}
			if lost = h.err; h.isRead {
				view.update(h.records, now, o.wallClock())
			} else if lost != nil {
				view.lastRead = now
			}
			continue
		case <-ticker.C:
		}
		now := w.recordCheck()
		r, moves := w.currentRecord()
		hosts := view.currentHosts()
		own := &hosts[min(o.Host, len(hosts)-1)]
		*own = Host{Record: r, isSelf: true, hasChanged: own.hasChanged, Alive: r.State != Ended}
		missing := slices.ContainsFunc(hosts, func(h Host) bool { return h.Missing })
		own.standstillTimeout = o.standstillTimeout(time.Duration(r.Timeout*float64(time.Second)), missing).Seconds()
		if lost != nil && now-lostAt >= o.MinTimeout/2 {
			own.storeError = errorText(lost)
		}
		found := diagnose(hosts, o.MinTimeout.Seconds())
		stopping := slices.DeleteFunc(slices.Clone(found), func(f Finding) bool { return !isFatal(f) })
		certain := slices.ContainsFunc(stopping, isCertain)
		lasts := certain && r.Duration > o.MinTimeout.Seconds()/2
		w.mu.Lock()
		w.record.Findings = found
		if lasts {
			w.suspected, w.suspectedAt = stopping, now
		}
		w.mu.Unlock()
		// A finding that stops the run is reported once while the host makes no progress. Other
		// findings are reported once until they change.
		if moves != move {
			move, since = moves, 0
			said = slices.DeleteFunc(said, isFatal)
		}
		w.logFindings(withoutKnown(found, said))
		said = slices.DeleteFunc(said, func(f Finding) bool { return !isFatal(f) })
		said = append(said, withoutKnown(found, said)...)
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
		case over > 0 && now-over >= min(exitDelay, o.CancelDelay):
			if over = 0; o.Exit == nil {
				o.Logger.Error("watchdog: the wait cannot be ended, and the process goes on; set watchdog.Options.Exit to os.Exit to end it")
				continue
			}
			o.Logger.Error("watchdog: the wait cannot be ended: the process ends", "code", ExitCode)
			return true
		}
	}
}
