package fit

import (
	"context"
	"slices"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Every is an interval in steps. What has an interval of n is done after each step whose number,
// counted from 1 over the whole run, is a multiple of n.
type Every int64

// due reports whether something is due after a step.
func (e Every) due(step int64) bool { return e > 0 && step%int64(e) == 0 }

// next returns the first step after the given one at which something is due, or never.
func (e Every) next(step int64) int64 {
	if e <= 0 {
		return never
	}
	return (step/int64(e) + 1) * int64(e)
}

const never = int64(1)<<62 - 1

// Metric is a number by its name.
type Metric struct {
	Name  string
	Value float64
}

// Hook follows a run. It is a struct of functions, each of which may be nil, so that a program's
// own hooks are made as those of this package are.
//
// A record is a step after which the loss is read: see [Options].Every. After such a step all
// Measure functions that are due run, in the order of the hooks, and then all Record functions. A
// step at which a hook with an interval is due is a record, too. Between the records the loop calls
// nothing but Doing.
//
// With several processes every process has the same hooks. A hook that writes files does so where
// [State.First] is true.
type Hook struct {
	// Name names the hook in errors. Two hooks with Save need different names.
	Name string
	// Every is the interval of Measure and Record. If it is 0, both run at each record.
	Every Every
	// Files are the paths of what the hook writes. A run in which two hooks write the same file is
	// refused.
	Files []string
	// Publishes are the names of the metrics that Measure sets, as far as they are known
	// beforehand, and Needs the names of those that Record waits for. A run in which nothing
	// publishes what a hook needs is refused. A hook with a Measure function and no Publishes may
	// set any metric.
	Publishes, Needs []string

	// Begin runs before the first step, and after a resume when the variables are restored.
	Begin func(ctx context.Context, s *State) error
	// Measure measures, and publishes what it measured by [State.Set]. It may wait and may launch
	// functions, but takes no training steps. A Measure that the run's context interrupts, or that
	// fails, is called again for the same step when the run resumes.
	Measure func(ctx context.Context, s *State) error
	// Record looks at what was measured after this step, and may call [State.Stop]. All hooks'
	// Record functions run, whatever any of them returns.
	Record func(ctx context.Context, s *State) error
	// End runs once if the run came past Begin, however it ended. err says how: nil, or the error
	// that Run is to return.
	End func(ctx context.Context, s *State, err error) error

	// Doing is told as the run turns to something: it waits for a batch (watchdog.Input), launches a
	// step, waits for a result or for the other processes, saves, restores, calls a hook, opens its
	// data. Name says which hook or what, or is empty. It does so until the next call. A resume
	// restores before Begin. Doing is called from the run's goroutine, twice a step and more, and must
	// not wait. A save in the background is told of while the step waits for it.
	Doing func(what watchdog.Activity, name string)

	// Save returns what the hook keeps in a checkpoint, and Load takes it back after a resume,
	// before Begin. With several processes the bytes are those of the first process.
	Save func() ([]byte, error)
	Load func(saved []byte) error

	// evaluates is the name of the metrics of an Evaluate hook.
	evaluates string
	// wrong is what is wrong with the hook's own options.
	wrong error
	// reset prepares the hook for a run.
	reset func()
	// compiled is told of the step before the first one of a life is taken.
	compiled func(s *State, c *strategy.CompiledStep)
	// steps are others that the hook makes records.
	steps []int64
	// also is another interval of due and keep.
	also Every
	// keep saves variables, after all Record functions, if due says so.
	due  func(s *State) bool
	keep func(ctx context.Context, s *State) error
	// saver is that of the Checkpoint hook, watch the options of the Watch hook, and replay the interval
	// of the Replay hook.
	saver  *saver
	watch  *watchdog.Options
	replay Every
}

// measures reports whether the hook may publish metrics that it does not name.
func (h *Hook) measures() bool { return h.Measure != nil && len(h.Publishes) == 0 }

// at reports whether the hook's Measure and Record are due at a record.
func (h *Hook) at(step int64) bool { return h.Every == 0 || h.Every.due(step) }

// asks reports whether the hook makes a step a record by its interval.
func (h *Hook) asks() bool { return h.Every > 0 && (h.Measure != nil || h.Record != nil) }

// asksFor reports whether the hook makes a step a record.
func (h *Hook) asksFor(step int64) bool {
	return h.asks() && h.Every.due(step) || slices.Contains(h.steps, step)
}

// Each calls f after each of the steps that every says. f may read the loss with [State.Value], set
// metrics of its own with [State.Set], which later hooks record, and end the run with [State.Stop].
// An error of f ends the run. If f fails, it is called again for the same step after a resume.
func Each(every Every, f func(ctx context.Context, s *State) error) Hook {
	h := Hook{Name: "each", Every: every, Measure: f}
	if every < 1 || f == nil {
		h.wrong = option("hook each", "give an interval of at least 1, and a function", "an interval of %d steps, or no function", every)
	}
	return h
}
