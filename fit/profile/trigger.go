package profile

import (
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
)

// Options say what a run records. The zero value records nothing.
type Options struct {
	// Place is a folder, or the URL of a store, for the profiles; each process writes its own.
	Place string
	// From and To are the first and the last step to record, counted from 1 over the whole run. The
	// run waits for the step before From and for To, as at a record. 0 for both records no step
	// unless the Trigger asks.
	From, To int64
	// Trigger, if there is one, asks for recordings meanwhile. Each process records when its own
	// asks: from the run's next record to the first that comes at least as many steps later.
	Trigger *Trigger
}

// Trigger asks a run for a recording. The zero value is ready. It is safe for concurrent use.
type Trigger struct{ steps atomic.Int64 }

// Ask asks for a recording of at least so many steps, 1 if it is less. A recording that was asked for
// and has not begun is replaced.
func (t *Trigger) Ask(steps int64) { t.steps.Store(max(1, steps)) }

// Asked returns the steps of the recording that was asked for, once, and 0 if none was.
func (t *Trigger) Asked() int64 {
	if t == nil {
		return 0
	}
	return t.steps.Swap(0)
}

// ServeHTTP asks for a recording of ?steps= steps, 1 without it, and answers 202. A request that is no
// POST gets 405, and one whose number is none 400.
func (t *Trigger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "send a POST", http.StatusMethodNotAllowed)
		return
	}
	steps := int64(1)
	if text := r.FormValue("steps"); text != "" {
		var err error
		if steps, err = strconv.ParseInt(text, 10, 64); err != nil || steps < 1 {
			http.Error(w, "steps is "+strconv.Quote(text)+"; give a number of at least 1", http.StatusBadRequest)
			return
		}
	}
	t.Ask(steps)
	w.WriteHeader(http.StatusAccepted)
}

// Notify asks for a recording of a step each time that the process gets one of the signals, until
// stop is called.
func (t *Trigger) Notify(signals ...os.Signal) (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	go func() {
		for range c {
			t.Ask(1)
		}
	}()
	return func() { signal.Stop(c); close(c) } // nothing is sent after Stop
}
