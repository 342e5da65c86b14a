package profile

import (
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
)

// Options selects the steps that a run records.
type Options struct {
	// Dir is the folder, or the URL of a store, for the profiles. Each process writes its own
	// file.
	Dir string
	// From and To are the first and the last recorded step, counted from 1 over the whole run. The
	// run waits for the step before From and for step To, as at a record. If both are 0, only the
	// Trigger starts recordings.
	From, To int64
	// Trigger, if not nil, requests recordings during the run. Each process has its own trigger. A
	// recording starts at the next record of the run and ends at the first record that is at least
	// the requested number of steps later.
	Trigger *Trigger
}

// Trigger requests recordings from a run. The zero value is ready to use. It is safe for concurrent
// use.
type Trigger struct{ steps atomic.Int64 }

// Request requests a recording of at least the given number of steps; values below 1 mean 1. It
// replaces an earlier request whose recording has not begun.
func (t *Trigger) Request(steps int64) { t.steps.Store(max(1, steps)) }

// TakeRequest returns the number of steps of the pending request and clears the request. It returns
// 0 if there is no request.
func (t *Trigger) TakeRequest() int64 {
	if t == nil {
		return 0
	}
	return t.steps.Swap(0)
}

// ServeHTTP requests a recording. The parameter steps is the number of steps, by default 1. The
// status of the response is 202, or 405 if the method is not POST, or 400 if steps is not a
// positive number.
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
	t.Request(steps)
	w.WriteHeader(http.StatusAccepted)
}

// Notify requests a recording of one step whenever the process receives one of the signals, until
// stop is called.
func (t *Trigger) Notify(signals ...os.Signal) (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	go func() {
		for range c {
			t.Request(1)
		}
	}()
	return func() { signal.Stop(c); close(c) } // nothing is sent after Stop
}
