package fit

import (
	"context"
	"slices"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Every is an interval in steps. An action with interval n is due after each step whose number is a
// multiple of n. Steps are counted from 1 over the whole run, including the steps before a resume.
type Every int64

func (e Every) isDue(step int64) bool { return e > 0 && step%int64(e) == 0 }

// nextDue returns the next multiple of the interval after step. It returns the constant never if
// the interval is not positive.
func (e Every) nextDue(step int64) int64 {
	if e <= 0 {
		return never
	}
	return (step/int64(e) + 1) * int64(e)
}

const never = int64(1)<<62 - 1

// Metric is a named number.
type Metric struct {
	Name  string
	Value float64
}

// Hook extends a run with functions, each of which may be nil. The hooks of this package are Hook
// values, too.
//
// A record is a step after which the run reads the loss: see [Options].Every. A step at which the
// interval of a hook is due is also a record. After a record, the run calls all Measure functions
// that are due, in the order of the hooks, and then all Record functions. Between records it only
// calls OnActivity.
//
// With several processes every process must have the same hooks. A hook that writes files must do
// so only if [State.IsChief] returns true.
type Hook struct {
	// Name identifies the hook in errors. Two hooks with Save need different names.
	Name string
	// Every is the interval of Measure and Record. If it is 0, both run at each record.
	Every Every
	// Files are the paths that the hook writes. Run returns an error if two hooks have the same
	// path.
	Files []string
	// Publishes are the names of the metrics that Measure sets, if they are known before the run.
	// Requires are the names of the metrics that Record requires. Run returns an error if nothing
	// publishes a required metric. A hook with a Measure function and no Publishes may set any
	// metric.
	Publishes, Requires []string

	// Begin runs before the first step. In a resumed run it runs after the variables are restored.
	Begin func(ctx context.Context, s *State) error
	// Measure measures metrics and publishes them with [State.SetMetric]. It may wait and may launch
	// functions, but must not run training steps. If Measure fails or is interrupted by the run's
	// context, it is called again for the same step when the run resumes.
	Measure func(ctx context.Context, s *State) error
	// Record processes the metrics of this step, and may call [State.Stop]. All Record functions
	// run, even if one of them returns an error.
	Record func(ctx context.Context, s *State) error
	// End runs once at the end of the run, unless the run ended before this hook's Begin or Begin
	// failed. err is the error that Run is about to return, or nil.
	End func(ctx context.Context, s *State, err error) error

	// OnActivity is called when the run starts an activity, which lasts until the next call. The
	// run waits for a batch (watchdog.Input), launches a step, waits for a result or for the other
	// processes, saves, restores, calls a hook, or opens its data. The name of the hook or of the
	// object may be empty. A resumed run restores before Begin. A background save is reported only
	// while a step waits for it. OnActivity is called at least twice per step and must not block.
	OnActivity func(kind watchdog.Activity, name string)

	// Save returns the state of the hook for a checkpoint. Load restores it in a resumed run,
	// before Begin. With several processes the state is the state of process 0.
	Save func() ([]byte, error)
	Load func(saved []byte) error

	// metricPrefix is the prefix of the metrics of an Evaluate hook.
	metricPrefix string
	// err reports invalid arguments or options of the hook.
	err   error
	reset func()
	// onCompiled is called with the compiled step before the first step of an attempt.
	onCompiled func(s *State, c *strategy.CompiledStep)
	// recordSteps are additional steps that are records.
	recordSteps []int64
	// saveEvery is a second interval at which shouldSave is called.
	saveEvery Every
	// saveVariables saves variables, after all Record functions, if shouldSave returns true.
	shouldSave    func(s *State) bool
	saveVariables func(ctx context.Context, s *State) error
	// saver belongs to a Checkpoint hook, watch to a Watch hook, and replay to a Replay hook.
	saver  *saver
	watch  *watchdog.Options
	replay Every
}

// publishesAny reports whether the hook may publish metrics that are not in Publishes.
func (h *Hook) publishesAny() bool { return h.Measure != nil && len(h.Publishes) == 0 }

// isDue reports whether the run calls the hook's Measure and Record functions after the given step,
// if it reads the loss at that step.
func (h *Hook) isDue(step int64) bool { return h.Every == 0 || h.Every.isDue(step) }

// addsRecords reports whether the run must read the loss at each interval of the hook, because it
// then calls the hook.
func (h *Hook) addsRecords() bool { return h.Every > 0 && (h.Measure != nil || h.Record != nil) }

// makesRecord reports whether the run must read the loss after the given step because of this hook.
func (h *Hook) makesRecord(step int64) bool {
	return h.addsRecords() && h.Every.isDue(step) || slices.Contains(h.recordSteps, step)
}

// Each returns a hook that calls f after each step that is a multiple of every. f can read metrics
// with [State.Value], publish metrics with [State.SetMetric], and end the run with [State.Stop]. An
// error of f ends the run; when the run is resumed, it calls f again for the same step.
func Each(every Every, f func(ctx context.Context, s *State) error) Hook {
	h := Hook{Name: "each", Every: every, Measure: f}
	if every < 1 || f == nil {
		h.err = optionError("hook each", "give an interval of at least 1, and a function",
			"an interval of %d steps, or no function", every)
	}
	return h
}
