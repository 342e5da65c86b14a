package watchdog

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/tpustrategy/tpustrategy/strategy/status"
)

// storeWait bounds an exchange with the board.
const storeWait = 10 * time.Second

// exchange is what a watch knows of its exchanges with the board, one at a time, each in a goroutine
// of its own: a place that is slow does not hold the watch up.
type exchange struct {
	answers  chan answer        // of length 1
	stop     context.CancelFunc // of the one under way, or nil
	sequence int64              // of the last record
	put      time.Duration      // when that was put
	read     time.Duration      // when the records were last read
	lost     error              // why the board cannot be reached, since lostAt
	lostAt   time.Duration
}

// answer is what came of an exchange.
type answer struct {
	all  []status.Record
	took time.Duration // of the reading; 0 is none
	err  error
}

// meet begins an exchange if one is due. More hosts read more rarely, as each reads the records of
// all, and so do hosts that do not wait.
func (e *watch) meet(s state, now time.Duration) {
	if e.board == nil || e.stop != nil {
		return
	}
	hurry := s.lasted > e.opts.Floor/2
	interval, among := e.interval(hurry), 8
	if hurry {
		among = 64
	}
	if e.sequence > 0 && now-e.put < interval {
		return
	}
	reads := e.opts.Hosts > 1 && (e.read == 0 || e.lost != nil || now-e.read >= interval*time.Duration(max(e.opts.Hosts/among, 1)))
	if e.put = now; reads {
		e.read = now
	}
	e.begin(s.record, reads)
}

// begin begins an exchange.
func (e *watch) begin(r status.Record, reads bool) {
	ctx, cancel := context.WithTimeout(context.Background(), storeWait)
	e.stop = cancel
	e.sequence++
	r.Sequence = e.sequence
	go func() {
		defer cancel()
		a := answer{err: e.tell(ctx, &r)}
		if reads {
			began := e.now()
			all, unreadable, err := e.board.Read(ctx, e.opts.Hosts)
			if len(all) == 0 && len(unreadable) > 0 {
				err = unreadable[0]
			}
			a.all, a.took, a.err = all, max(e.now()-began, 1), cmp.Or(a.err, err)
		}
		e.answers <- a
	}()
}

// tell puts a record. Before the first one host 0 reads that of the life before, which it is put over.
func (w *Watchdog) tell(ctx context.Context, r *status.Record) error {
	if w.opts.Host == 0 && !w.heir {
		_ = w.board.Clear(ctx, w.opts.Hosts)
		before, err := w.board.Get(ctx, 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, status.ErrRecord) {
			return err // it is tried again
		}
		w.mu.Lock()
		w.heir, w.past = true, before.History
		h := w.history()
		r.History = &h
		w.mu.Unlock()
	}
	return w.board.Put(ctx, r)
}

// take takes what came of an exchange. The others are not silent while the place is slow.
func (e *watch) take(a answer) {
	e.stop = nil
	if a.err != nil && e.lost == nil {
		e.lostAt = e.now()
	}
	e.lost = a.err
	if a.took > e.opts.Floor/5 || a.took > 0 && a.err != nil {
		e.view.Excuse(a.took, time.Now())
	}
	e.view.See(a.all, time.Now(), e.opts.clock())
}

// farewell puts a last record, for which it waits for so long at most.
func (e *watch) farewell(r status.Record, most time.Duration) {
	if e.board == nil {
		return
	}
	timeout := time.After(most)
	for e.stop != nil {
		e.stop()
		select {
		case a := <-e.answers:
			e.take(a)
		case <-timeout:
			return
		}
	}
	e.begin(r, false)
	select {
	case a := <-e.answers:
		e.take(a)
	case <-timeout:
	}
}
