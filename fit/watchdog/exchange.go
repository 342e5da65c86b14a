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

type storeResult struct {
	isRead  bool // all contains the current records
	records []Record
	err     error
}

// storeTimeout limits one access to the record store.
const storeTimeout = 10 * time.Second

// exchangeRecords periodically writes this host's record and reads the records of all hosts, until
// the watchdog is closed. It runs in its own goroutine, so that a slow store does not delay the
// checks. The interval of the reads increases with the number of hosts, and decreases while this
// host waits.
func (w *Watchdog) exchangeRecords() {
	ticker := time.NewTicker(w.opts.recordInterval())
	defer ticker.Stop()
	var sequence int64
	var previous []byte // record of the earlier attempt
	inherited, cleared, lost := false, false, false
	writeRecord := func(ctx context.Context) (err error) {
		if !inherited { // the first put replaces the record of the earlier attempt
			if previous, err = w.readPrevious(ctx); err != nil {
				return err // the next put tries again
			}
			inherited = true
		}
		r, _ := w.currentRecord()
		if !cleared && (r.Step > 0 || r.State == Ended) { // the attempt was accepted
			_ = w.records.removeStale(ctx, w.opts.Hosts)
			cleared = true
		}
		sequence++
		r.Sequence = sequence
		return w.records.Put(ctx, &r)
	}
	for tick := 0; w.openContext.Err() == nil; tick++ {
		r, _ := w.currentRecord()
		isWaiting, hostsPerRead := r.Duration > w.opts.MinTimeout.Seconds()/2, 8
		if isWaiting {
			hostsPerRead = 64
		}
		if isWaiting || tick%2 == 0 || !storage.IsURL(w.records.store.String()) { // in a store each access is a request
			ctx, cancel := context.WithTimeout(w.openContext, storeTimeout)
			result := storeResult{err: writeRecord(ctx)}
			if w.opts.Hosts > 1 && (lost || tick%max(w.opts.Hosts/hostsPerRead, 1) == 0) {
				all, unreadable, err := w.records.ReadAll(ctx, w.opts.Hosts)
				if len(all) == 0 && len(unreadable) > 0 {
					err = unreadable[0]
				}
				result.records, result.isRead, result.err = all, err == nil, cmp.Or(result.err, err)
			}
			cancel()
			lost = result.err != nil
			select {
			case w.storeResults <- result:
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
		previous, err = w.readPrevious(ctx)
	}
	switch {
	case !withdrawn || w.opts.Host == 0 && previous == nil && err == nil:
		_ = writeRecord(ctx)
	case changed:
		_ = w.records.restore(ctx, w.opts.Host, previous)
	}
	if w.opts.Dir != "" {
		_ = w.records.Close()
	}
}

// readPrevious returns this host's record of the earlier attempt, or nil. On host 0 it also
// restores the history in that record.
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
	if previous, err := parseRecord(record); err == nil && previous.Host == 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pastHistory = previous.History
	}
	return record, nil
}

// exitDelay is the time between canceling the contexts and ending the process.
const exitDelay = 10 * time.Second

// monitor checks the hosts periodically until the watchdog is closed or the process must exit.
func (w *Watchdog) monitor() (exits bool) {
	o := &w.opts
	view := Monitor{fixedRun: true, MinSilence: max(o.MinTimeout, 3*o.recordInterval())}
	if view.setRun(o.Run, o.Hosts); w.records == nil {
		view.setRun(o.Run, 1) // only this host is known
	}
	var (
		storeErr           error // error of the last access to the store, since storeErrTime
		storeErrTime       time.Duration
		reported           []Finding     // reported findings
		lastProgress       int64         // progress at the last check
		stuckTime, endTime time.Duration // start of a certain problem, and cancellation of the contexts; 0 if none
	)
	ticker := time.NewTicker(o.checkInterval())
	defer ticker.Stop()
	for {
		select {
		case <-w.openContext.Done():
			return false
		case h := <-w.storeResults:
			now := w.recordCheck()
			if h.err != nil && storeErr == nil {
				storeErrTime = now
			}
			if storeErr = h.err; h.isRead {
				view.update(h.records, now, o.wallClock())
			} else if storeErr != nil {
				view.lastRead = now
			}
			continue
		case <-ticker.C:
		}
		now := w.recordCheck()
		r, moves := w.currentRecord()
		hosts := view.currentHosts()
		self := &hosts[min(o.Host, len(hosts)-1)]
		*self = Host{Record: r, isSelf: true, hasChanged: self.hasChanged, Alive: r.State != Ended}
		missing := slices.ContainsFunc(hosts, func(h Host) bool { return h.Missing })
		self.standstillTimeout = o.standstillTimeout(time.Duration(r.Timeout*float64(time.Second)), missing).Seconds()
		if storeErr != nil && now-storeErrTime >= o.MinTimeout/2 {
			self.storeError = errorText(storeErr)
		}
		findings := diagnose(hosts, o.MinTimeout.Seconds())
		fatal := slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return !isFatal(f) })
		certain := slices.ContainsFunc(fatal, isCertain)
		isLate := certain && r.Duration > o.MinTimeout.Seconds()/2
		w.mu.Lock()
		w.record.Findings = findings
		if isLate {
			w.suspected, w.suspectedAt = fatal, now
		}
		w.mu.Unlock()
		// A finding that stops the run is reported once while the host makes no progress. Other
		// findings are reported once until they change.
		if moves != lastProgress {
			lastProgress, stuckTime = moves, 0
			reported = slices.DeleteFunc(reported, isFatal)
		}
		w.logFindings(removeKnown(findings, reported))
		reported = slices.DeleteFunc(reported, func(f Finding) bool { return !isFatal(f) })
		reported = append(reported, removeKnown(findings, reported)...)
		switch {
		case !certain:
			stuckTime = 0
		case isLate && stuckTime == 0:
			stuckTime = now
		}
		switch {
		case w.Err() == nil && stuckTime > 0 && now-stuckTime >= o.CancelDelay:
			endTime = now
			w.cancel(w.stuckError(fatal))
			o.Logger.Error("watchdog: the run cannot continue: its context ends", "error", w.Err())
		case endTime > 0 && now-endTime >= min(exitDelay, o.CancelDelay):
			if endTime = 0; o.Exit == nil {
				o.Logger.Error(
					"watchdog: the wait cannot be canceled, and the process continues; set watchdog.Options.Exit to os.Exit to end it")
				continue
			}
			o.Logger.Error("watchdog: the wait cannot be canceled: the process ends", "code", ExitCode)
			return true
		}
	}
}
