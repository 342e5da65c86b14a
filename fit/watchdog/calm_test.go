package watchdog

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// calm runs eight hosts with varying step times, evaluations and saves, and checks that nothing is
// reported.
func calm(t *testing.T, steps int) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlice(8)
		began := time.Now()
		errs := make([]error, s.hosts)
		var wg sync.WaitGroup
		for i := range s.hosts {
			h, end, err := s.open(i, Options{}, func(h *host, place string, step int) error {
				switch {
				case place == "input" && step%997 == 0 && h.i == step%8:
					time.Sleep(3 * time.Second) // on one host
				case place == "launched" && step%1500 == 0:
					time.Sleep(4 * time.Second) // a larger batch, on all hosts
				}
				return nil
			})
			require.NoError(t, err)
			wg.Go(func() {
				errs[i] = h.run(steps)
				end(errs[i])
			})
		}
		wg.Wait()
		for i := range s.hosts {
			assert.NoError(t, errs[i])
			for _, r := range s.reports[i] {
				t.Errorf("host %d: %v, in %s after step %d", i, r.Findings, r.Activity, r.Step)
			}
		}
		t.Logf("%d steps on 8 hosts in %v of their time", steps, time.Since(began).Round(time.Second))
	})
}

func TestStepsThatGoOnGiveNoAlarm(t *testing.T) { calm(t, 3100) }

// TestAPlaceThatIsNotSharedEndsNothing checks hosts that only see their own records and wait for a
// save of minutes.
func TestAPlaceThatIsNotSharedEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlice(8)
		errs := make([]error, s.hosts)
		var wg sync.WaitGroup
		for i := range s.hosts {
			h, end, err := s.open(i, Options{RecordStore: NewRecordStore(view{newMemory(), i})}, func(h *host, place string,
				step int) error {
				if place == "save" && h.i == 0 {
					time.Sleep(5 * time.Minute)
				}
				return nil
			})
			require.NoError(t, err)
			wg.Go(func() {
				errs[i] = h.run(100)
				end(errs[i])
			})
		}
		wg.Wait()
		for i := range s.hosts {
			assert.NoError(t, errs[i])
			require.Len(t, s.reports[i], 1)
			f := s.reports[i][0].Findings
			require.Len(t, f, 1)
			assert.Equal(t, []any{i, StoreUnreachable}, []any{f[0].Host, f[0].Cause})
		}
	})
}

// TestManyStepsGiveNoAlarm runs 100 000 steps in simulated time, and 100 000 steps in real time on
// loaded processors: make test-watchdog.
func TestManyStepsGiveNoAlarm(t *testing.T) {
	if os.Getenv("TPUSTRATEGY_WATCHDOG") == "" {
		t.Skip("set TPUSTRATEGY_WATCHDOG=1, as make test-watchdog does")
	}
	t.Run("made time", func(t *testing.T) { calm(t, 100_000) })
	t.Run("loaded processors", func(t *testing.T) {
		stop := make(chan struct{})
		defer close(stop)
		for range 2 * runtime.NumCPU() {
			go func() {
				var sink []byte
				for {
					select {
					case <-stop:
						return
					default:
						sink = make([]byte, 1<<20) // the garbage collector has work
						_ = sink
						runtime.Gosched() // otherwise each step of eight hosts waits for eight time slices
					}
				}
			}()
		}
		s := newSlice(8)
		var wg sync.WaitGroup
		began := time.Now()
		for i := range s.hosts {
			h, end, err := s.open(i, Options{}, nil)
			require.NoError(t, err)
			wg.Go(func() {
				err := h.hurry(100_000)
				assert.NoError(t, err)
				end(err)
			})
		}
		wg.Wait()
		for i := range s.hosts {
			for _, r := range s.reports[i] {
				t.Errorf("host %d: %v, in %s after step %d", i, r.Findings, r.Activity, r.Step)
			}
		}
		t.Logf("100 000 steps on 8 hosts in %v", time.Since(began).Round(time.Second))
	})
}

// hurry runs steps that need no time except for the work of the other hosts, with occasional saves.
func (h *host) hurry(steps int) error {
	for step := 1; step <= steps; step++ {
		h.SetActivity(Input, "")
		if h.dice.IntN(20_000) == 0 {
			time.Sleep(2 * time.Second)
		}
		h.SetActivity(Launch, "")
		if err := h.meet(h.ctx, "launch"+time.Duration(step).String()); err != nil {
			return err
		}
		h.CompleteStep()
		if step%10_000 == 0 && h.i == 0 {
			h.SetActivity(Save, "checkpoint")
			time.Sleep(time.Duration(1+h.dice.IntN(4)) * time.Second)
			h.SetCheckpoint(int64(step))
		}
	}
	return nil
}

// A process that was stopped by a signal, or with its machine, is not reported for the time in
// which it was stopped.
func TestATimeInWhichTheProcessWasStoppedDoesNotCount(t *testing.T) {
	var ahead atomic.Int64
	began := time.Now()
	w, err := Start(t.Context(), Options{OnReport: func(r Report) { t.Errorf("%v", r.Findings) },
		sinceStart: func() time.Duration {
			return time.Since(began) + time.Duration(ahead.Load())
		}})
	require.NoError(t, err)
	defer w.Close(nil)
	for range 10 {
		w.SetActivity(Launch, "")
		w.CompleteStep()
	}
	w.SetActivity(Launch, "")
	time.Sleep(600 * time.Millisecond) // the watchdog has checked the host
	ahead.Store(int64(time.Hour))      // the watchdog's clock
	time.Sleep(time.Second)
	r, _ := w.currentRecord()
	assert.Less(t, r.Duration, 10.)
	w.CompleteStep()
	assert.Less(t, w.stats[activityKey{kind: Launch}].longest, 10*time.Second)
}

func TestAStepCostsLessThanAMicrosecondAndNoAllocation(t *testing.T) {
	w, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer w.Close(nil)
	step := func() {
		w.SetActivity(Input, "")
		w.SetActivity(Launch, "")
		w.CompleteStep()
	}
	assert.Zero(t, testing.AllocsPerRun(1000, step))
	best := time.Hour
	for range 20 { // the best of several, because the machine has other work
		const n = 2000
		began := time.Now()
		for range n {
			step()
		}
		best = min(best, time.Since(began)/n)
	}
	t.Logf("%v a step", best)
	assert.Less(t, best, slowdown*time.Microsecond)
}
