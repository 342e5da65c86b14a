package watchdog

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/activity"
)

// alone runs a loop under a watchdog in simulated time, and returns its reports.
func alone(t *testing.T, o Options, loop func(w *Watchdog)) (reports []Report) {
	synctest.Test(t, func(t *testing.T) {
		o.OnReport = func(r Report) { reports = append(reports, r) }
		w, err := Start(t.Context(), o)
		require.NoError(t, err)
		loop(w)
		require.NoError(t, w.Close(nil))
		require.NoError(t, w.Close(errors.New("again")))
	})
	return reports
}

// step runs a step whose launch lasts for a duration.
func step(w *Watchdog, d time.Duration) {
	w.SetActivity(Launch, "")
	time.Sleep(d)
	w.CompleteStep()
}

func TestADeadlineIsLearned(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		loop func(w *Watchdog)
		late Cause // empty if nothing is reported
	}{
		"the first steps have their time": {loop: func(w *Watchdog) {
			step(w, 20*time.Minute)
			step(w, time.Minute)
			step(w,
				time.Minute)
		}},
		"not all of it": {loop: func(w *Watchdog) { step(w, 40*time.Minute) }, late: Undetermined},
		"short steps": {loop: func(w *Watchdog) {
			for range 100 {
				step(w, 10*time.Millisecond)
			}
			step(w, 29*time.Second)
		}},
		"short steps, and a minute": {late: Undetermined, loop: func(w *Watchdog) {
			for range 100 {
				step(w, 10*time.Millisecond)
			}
			step(w, time.Minute)
		}},
		"an input is late on its own": {late: InInput, loop: func(w *Watchdog) {
			for range 10 {
				w.SetActivity(Input, "")
				time.Sleep(time.Millisecond)
				step(w, 10*time.Millisecond)
			}
			w.SetActivity(Input, "")
			time.Sleep(6 * time.Second)
		}},
		"the first input of a pass": {loop: func(w *Watchdog) {
			for range 10 {
				w.SetActivity(Setup, "")
				w.SetActivity(Input, "")
				time.Sleep(10 * time.Second)
				step(w, 10*time.Millisecond)
			}
		}},
		"steps of a minute": {loop: func(w *Watchdog) {
			for range 20 {
				step(w, time.Minute)
			}
			step(w, 9*time.Minute)
		}},
		"batches that grow": {loop: func(w *Watchdog) {
			for d := time.Second; d < time.Hour; d += d / 2 {
				for range 4 {
					step(w, d)
				}
			}
		}},
		"another program": {loop: func(w *Watchdog) {
			for range 100 {
				step(w, 10*time.Millisecond)
			}
			w.SetActivity(Launch, "")
			end := w.BeginNested(Compile, "for another batch size")
			time.Sleep(25 * time.Minute)
			end()
			time.Sleep(time.Minute)
			w.CompleteStep()
			step(w, time.Minute)
		}},
		"programs of other sizes": {loop: func(w *Watchdog) {
			for _, d := range []time.Duration{10 * time.Millisecond, 7 * time.Second, time.Minute, 20 * time.Minute} {
				end := w.BeginNested(Compile, "")
				time.Sleep(d)
				end()
			}
			step(w, time.Second)
		}},
		"what was long is forgotten": {late: Undetermined, loop: func(w *Watchdog) {
			for range 5 {
				step(w, time.Minute)
			}
			for range 3000 {
				step(w, 200*time.Millisecond)
			}
			step(w, 2*time.Minute)
		}},
		"a bound of one's own": {opts: Options{StepTimeout: 3 * time.Minute}, loop: func(w *Watchdog) {
			for range 10 {
				step(w, time.Millisecond)
			}
			step(w, 2*time.Minute)
		}},
		"beyond it, in the first step": {opts: Options{StepTimeout: 3 * time.Minute},
			loop: func(w *Watchdog) { step(w, 4*time.Minute) }, late: Undetermined},
		"each hook has its own times": {loop: func(w *Watchdog) {
			for range 50 {
				step(w, 10*time.Millisecond)
				w.SetActivity(Hook, "csv")
			}
			w.SetActivity(Hook, "evaluate")
			time.Sleep(20 * time.Minute)
			step(w, time.Millisecond)
		}},
		"a save that hangs": {late: InSave, loop: func(w *Watchdog) {
			for range 3 {
				step(w, time.Millisecond)
				w.SetActivity(Save, "")
				time.Sleep(time.Second)
			}
			step(w, time.Millisecond)
			w.SetActivity(Save, "")
			time.Sleep(7 * time.Second)
		}},
		"code of one's own": {loop: func(w *Watchdog) {
			for range 5 {
				step(w, time.Millisecond)
			}
			time.Sleep(20 * time.Minute)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reports := alone(t, c.opts, c.loop)
			if c.late == "" {
				assert.Empty(t, reports)
				return
			}
			if assert.NotEmpty(t, reports) {
				assert.Equal(t, c.late, reports[0].Findings[0].Cause, "%s", reports[0].Findings[0])
				assert.NotEmpty(t, reports[0].Goroutines)
			}
		})
	}
}

// TestAWarningIsALineAndTheDumpAFile checks that with a place for records the file is stored next
// to them.
func TestAWarningIsALineAndTheDumpAFile(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var log bytes.Buffer
	reports := alone(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		func(w *Watchdog) { step(w, 40*time.Minute) })
	require.NotEmpty(t, reports)
	line, _, _ := strings.Cut(log.String(), "\n")
	assert.Contains(t, line, "watchdog: no host stands out")
	_, file, ok := strings.Cut(line, "goroutines=")
	require.True(t, ok, line)
	dump, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, reports[0].Goroutines, string(dump))
	assert.NotContains(t, log.String(), "@ 0x")
}

func TestOptionsThatDoNotFitAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"option Host: host 3 of 2":             {Host: 3, Hosts: 2},
		"option Host: host 0 of -1":            {Hosts: -1},
		"option CancelDelay: -1ns is negative": {CancelDelay: -1},
		"option RecordStore: Dir is set, too":  {Dir: "x", RecordStore: &RecordStore{}},
		"storage: ":                            {Dir: "nowhere://x"},
	} {
		_, err := Start(t.Context(), o)
		assert.ErrorContains(t, err, want)
	}
}

// An activity of another goroutine does not count for the goroutine that runs the steps.
func TestActivitiesWithinEachOther(t *testing.T) {
	w, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer w.Close(nil)
	doing := func() string {
		r, _ := w.currentRecord()
		return r.Activity
	}
	w.SetActivity(Launch, "")
	compile := w.BeginNested(Compile, "step")
	exchange := w.BeginNested(Exchange, "fingerprints")
	assert.Equal(t, "exchange", doing())
	compile() // ends the nested activities, too
	assert.Equal(t, "launch", doing())
	exchange()
	assert.Equal(t, "launch", doing())
	end := w.BeginNested(Save, "in the background")
	w.CompleteStep()
	assert.Equal(t, "own code", doing())
	end()
	ctx, stop := w.Context(t.Context())
	defer stop()
	activity.Begin(ctx, activity.Exchange, "barrier")()
	assert.Equal(t, int64(2), w.stats[activityKey{kind: Exchange}].count)
	for range 2 * maxNested {
		defer w.BeginNested(Compile, "")()
	}
	assert.Equal(t, "compile", doing())
}

func TestTheProgramsOwnGoroutinesComeFirst(t *testing.T) {
	dump := "goroutine profile: total 6\n" + strings.Join([]string{
		"1 @ 0x1\n#\t0x1\truntime.goexit+0x1\t/x.go:1",
		"2 @ 0x2\n#\t0x1\tnet/http.(*Server).Serve+0x1\t/x.go:1",
		"1 @ 0x4\n#\t0x1\tmain.load+0x1\t/main.go:7\n#\t0x1\tmain.main+0x1\t/main.go:3",
		"1 @ 0x5\n#\t0x1\t" + modulePath + "fit/watchdog.(*Watchdog).watch+0x1\t/x.go:1",
		"1 @ 0x6\n#\t0x1\t" + modulePath + "strategy/feed.(*Feed).fill+0x1\t/x.go:1",
	}, "\n\n") + "\n\n"
	text := sortStacks(dump)
	var order []string
	for block := range strings.SplitSeq(text, "\n\n") {
		_, after, _ := strings.Cut(block, "@ 0x")
		order = append(order, after[:1])
	}
	assert.Equal(t, []string{"4", "6", "1", "2", "5"}, order)
	assert.Less(t, len(sortStacks(dump+strings.Repeat("1 @ 0x9\n#\t"+strings.Repeat("x", 9000)+"\n\n", 30))),
		maxGoroutines+200)
	w, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer w.Close(nil)
	assert.Contains(t, w.newReport([]Finding{{Cause: Undetermined}}).Goroutines,
		"watchdog.TestTheProgramsOwnGoroutinesComeFirst")
}
