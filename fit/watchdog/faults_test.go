package watchdog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errLeave = errors.New("it had enough")

// fault is a fault of one of the hosts.
type fault struct {
	name  string
	host  int
	cause Cause
	// at triggers the fault and calls once when it begins.
	at func(h *host, place string, step int, once func())
	// goes reports that the run continues in spite of the fault.
	goes bool
	err  error // returned by the host's loop
	opts func(i int, o *Options)
}

// block waits until the watchdog ends the context.
func block(h *host) { <-h.ctx.Done() }

// faults are the kinds of faults. Step 45 is an ordinary step, step 50 is a record, and step 80 is
// a save.
var faults = []fault{
	{name: "a host that is dead", host: 5, cause: Silent, at: func(h *host, place string, step int, once func()) {
		if place == "launch" && step == 45 {
			once()
			h.hush(0)
		}
	}},
	{name: "a host that is stopped and goes on after 20 s", host: 2, cause: Silent, goes: true,
		at: func(h *host, place string, step int, once func()) {
			if place == "input" && step == 45 {
				once()
				h.hush(20 * time.Second)
			}
		}},
	{name: "input that blocks", host: 3, cause: InInput, at: func(h *host, place string, step int, once func()) {
		if place == "input" && step == 45 {
			once()
			block(h)
		}
	}},
	{name: "input that is slow", host: 6, cause: Slow, goes: true, at: func(h *host, place string, step int, once func()) {
		if place == "input" && step >= 45 {
			once()
			time.Sleep(300 * time.Millisecond)
		}
	}},
	{name: "a save that hangs", host: 0, cause: InSave, at: func(h *host, place string, step int, once func()) {
		if place == "save" && step == 80 {
			once()
			block(h)
		}
	}},
	{name: "a full disk", host: 0, cause: OperationFailed, goes: true, at: func(h *host, place string, step int,
		once func()) {
		if place == "save" && step == 80 {
			once()
			h.ReportError(fmt.Errorf("save step 80: %w", syscall.ENOSPC))
		}
	}},
	{name: "a launch that never returns", host: 7, cause: InLaunch, at: func(h *host, place string, step int,
		once func()) {
		if place == "launched" && step == 45 {
			once()
			block(h)
		}
	}},
	{name: "a host that compiles for ever", host: 4, cause: InCompile, at: func(h *host, place string, step int,
		once func()) {
		if place == "compile" {
			once()
			block(h)
		}
	}},
	{name: "a host that left the loop early", host: 1, cause: Exited, err: errLeave, at: nil},
	{name: "a deadlock in a hook", host: 3, cause: InHook, at: func(h *host, place string, step int, once func()) {
		if place == "hook" && step == 10 {
			once()
			block(h)
		}
	}},
	{name: "a status store that one host lost", host: 4, cause: StoreUnreachable, goes: true,
		at: func(h *host, place string, step int, once func()) {
			if place == "input" && step == 45 {
				once()
				h.lose()
			}
		}},
	{name: "a clock that is an hour off", host: 2, cause: ClockSkew, goes: true, opts: func(i int, o *Options) {
		if i == 2 {
			o.wallClock = func() time.Time { return time.Now().Add(time.Hour) }
		}
	}},
	{name: "a host in another exchange", host: 5, cause: InExchange, at: func(h *host, place string, step int,
		once func()) {
		if place == "exchange" && step == 50 {
			once()
			h.SetActivity(Exchange, "barrier mine")
			_ = h.meet(h.ctx, "barrier mine")
		}
	}},
	{name: "a host that never came", host: 7, cause: Missing, at: nil},
}

// TestEachFaultIsNamedOnAllHosts triggers each of the faults on one of eight hosts. All hosts that
// can report name the host and the cause within 10 seconds, and report nothing else. If the run
// cannot continue, it ends.
func TestEachFaultIsNamedOnAllHosts(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { underFault(t, f) })
		})
	}
}

func underFault(t *testing.T, f fault) {
	s := newSlice(8)
	began := time.Now()
	at := func(h *host, place string, step int) error {
		if h.i != f.host {
			return nil
		}
		if f.cause == Exited && place == "input" && step == 45 {
			began = time.Now()
			return errLeave
		}
		if f.at != nil {
			f.at(h, place, step, sync.OnceFunc(func() {
				if step <= 45 || place != "input" { // slowness continues
					began = time.Now()
				}
			}))
		}
		return nil
	}
	errs := make([]error, s.hosts)
	var wg sync.WaitGroup
	for i := range s.hosts {
		if f.cause == Missing && i == f.host {
			continue
		}
		var o Options
		if f.opts != nil {
			f.opts(i, &o)
		}
		if f.cause == InCompile || f.cause == InHook {
			o.FirstTimeout = 2 * time.Minute // the limit for faults that are found by comparison
		}
		h, end, err := s.open(i, o, at)
		require.NoError(t, err)
		wg.Go(func() {
			errs[i] = h.run(1100)
			end(errs[i])
		})
	}
	wg.Wait()
	named := 0
	for i := range s.hosts {
		all := s.reports[i]
		dead := i == f.host && slices.Contains([]Cause{Silent, Exited, Missing}, f.cause)
		if dead {
			continue
		}
		if assert.NotEmpty(t, all, "host %d is silent about it", i) {
			first := all[0].Findings[0]
			assert.Equal(t, []any{f.host, f.cause}, []any{first.Host, first.Cause}, "host %d says %s", i, first)
			took := s.times[i][0].Sub(began)
			assert.LessOrEqual(t, took, 10*time.Second, "host %d: %s", i, first)
			named++
			if i == 1 || i == 2 {
				t.Logf("host %d, %.1f s after: %s", i, took.Seconds(), first)
			}
			for _, r := range all {
				for _, other := range r.Findings {
					if other.Host != f.host && !(f.cause == Exited) {
						t.Errorf("host %d blames another: %s", i, other)
					}
				}
			}
		}
		if f.goes {
			assert.NoError(t, errs[i], "host %d", i)
			continue
		}
		var stuck *StuckError
		if assert.ErrorAs(t, errs[i], &stuck, "host %d", i) {
			assert.Equal(t, f.host, stuck.Findings[0].Host)
			assert.NotEmpty(t, stuck.Goroutines)
			assert.Equal(t, ExitCode, stuck.ExitCode())
			assert.ErrorIs(t, stuck, context.Canceled)
		}
	}
	require.GreaterOrEqual(t, named, 7, fmt.Sprint(f.name))
}
