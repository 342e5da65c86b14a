package fit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// BestOptions specifies which of two metric values is better. By default, a lower value is better.
type BestOptions struct {
	// Maximize makes higher values better, as for an accuracy.
	Maximize bool
	// MinDelta is the minimum improvement: a value that improves the best value so far by MinDelta
	// or less does not count as better.
	MinDelta float64
}

// bestTracker tracks the best value of a metric. It ignores NaN.
type bestTracker struct {
	metric string
	opts   BestOptions
	// value is the best value so far and step is its step. step is 0 if there is no value yet.
	// recordsSince counts the records after step.
	value        float64
	step         int64
	recordsSince int
}

// update compares the metric's value after a step with the best earlier value and reports whether
// the new value is better. It also counts the values since the best one.
func (b *bestTracker) update(step int64, value float64) bool {
	gain := b.value - value
	if b.opts.Maximize {
		gain = -gain
	}
	if math.IsNaN(value) || b.step > 0 && !(gain > b.opts.MinDelta) {
		b.recordsSince++
		return false
	}
	b.value, b.step, b.recordsSince = value, step, 0
	return true
}

// bestState is the encoding of a bestTracker in a checkpoint. The value is text because JSON has no
// infinity.
type bestState struct {
	Metric       string `json:"metric"`
	Value        string `json:"value"`
	Step         int64  `json:"step"`
	RecordsSince int    `json:"since"`
}

func (b *bestTracker) save() ([]byte, error) {
	return json.Marshal(bestState{b.metric, strconv.FormatFloat(b.value, 'g', -1, 64), b.step, b.recordsSince})
}

func (b *bestTracker) load(data []byte) error {
	var saved bestState
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	value, err := strconv.ParseFloat(saved.Value, 64)
	if err != nil {
		return err
	}
	b.value, b.step, b.recordsSince = value, saved.Step, saved.RecordsSince
	return nil
}

// newBestTracker returns a tracker for a metric. It returns an error if the name is empty or the
// options are invalid.
func newBestTracker(hook, metric string, opts []BestOptions) (*bestTracker, error) {
	o, err := singleOption("hook "+hook, opts)
	b := &bestTracker{metric: metric, opts: o}
	if metric == "" {
		return b, optionError("hook "+hook, "give the name of a metric, such as fit.Loss", "no metric: the empty name")
	}
	if b.opts.MinDelta < 0 || math.IsNaN(b.opts.MinDelta) {
		return b, optionError("hook "+hook, "give 0 or more", "a MinDelta of %v", b.opts.MinDelta)
	}
	return b, err
}

// EarlyStop ends the run when a metric has not improved for patience consecutive records (see
// [Options].Every). Records without the metric are not counted. The metric is [Loss], another
// metric of the step, or a metric of a hook, such as "held/loss" of [Evaluate].
//
// Checkpoints contain the count. If a run that stopped early is resumed, it runs no more steps
// unless patience is larger than before. With several processes, all of them make the same decision
// because they compare the same values.
func EarlyStop(metric string, patience int, opts ...BestOptions) Hook {
	name := "early stop by " + metric
	b, wrong := newBestTracker(name, metric, opts)
	if patience < 1 && wrong == nil {
		wrong = optionError("hook "+name, "give at least 1", "a patience of %d records", patience)
	}
	stop := func(s *State) {
		switch {
		case b.recordsSince < patience:
		case b.step == 0:
			s.Stop(fmt.Sprintf("%s was never a number", metric))
		default:
			s.Stop(fmt.Sprintf("%s has not become better since step %d, when it was %v", metric, b.step, b.value))
		}
	}
	return Hook{Name: name, Requires: []string{metric}, err: wrong, Save: b.save, Load: b.load,
		reset: func() { *b = bestTracker{metric: b.metric, opts: b.opts} },
		Begin: func(_ context.Context, s *State) error {
			stop(s) // a run that has already stopped, unless patience is larger now
			return nil
		},
		Record: func(_ context.Context, s *State) error {
			if value, ok := s.Value(metric); ok && !b.update(s.Step(), value) {
				stop(s)
			}
			return nil
		}}
}

// TerminateOnNaN ends the run with a [*train.NonFiniteError] at the first record (see
// [Options].Every) at which one of the metrics is NaN or infinite. Without arguments it checks the
// loss. The run saves no checkpoint of that step. In contrast, [train.NonFinite] checks every step
// and discards the update of a step that fails the check.
func TerminateOnNaN(metrics ...string) Hook {
	if len(metrics) == 0 {
		metrics = []string{Loss}
	}
	return Hook{Name: "finite", Requires: metrics, Record: func(_ context.Context, s *State) error {
		for _, m := range s.Metrics() {
			if (math.IsNaN(m.Value) || math.IsInf(m.Value, 0)) && slices.Contains(metrics, m.Name) {
				return &train.NonFiniteError{Function: s.runner.trainStep.Name(), Step: s.Step(),
					What: fmt.Sprintf("%s (%v)", m.Name, m.Value), Applied: true}
			}
		}
		return nil
	}}
}

// KeepBest saves a checkpoint whenever a metric is better than all earlier values, and removes the
// previous best checkpoint. dir is a folder or a URL that no other hook uses. The checkpoints have
// the format of [Checkpoint], so a run can resume from them. The best value is part of every
// checkpoint, so a resumed run continues the comparison.
//
// If the disk is full, the hook logs a warning and keeps the previous best checkpoint.
func KeepBest(dir, metric string, opts ...BestOptions) Hook {
	name := "keep best by " + metric
	b, wrong := newBestTracker(name, metric, opts)
	v := &saver{path: dir, opts: CheckpointOptions{Keep: 1}}
	var before bestTracker
	return Hook{Name: name, Files: []string{dir}, Requires: []string{metric}, err: wrong, Save: b.save, Load: b.load,
		reset: func() { *b = bestTracker{metric: b.metric, opts: b.opts} },
		Begin: v.openBest,
		End: func(_ context.Context, s *State, err error) error {
			v.limitWait(s.runner, err)
			return v.close(s.runner)
		},
		shouldSave: func(s *State) bool {
			value, ok := s.Value(metric)
			before = *b
			return ok && s.isRecordStep() && b.update(s.Step(), value)
		},
		saveVariables: func(ctx context.Context, s *State) error {
			v.removeLater = true        // replaces a checkpoint that the run saved before it was killed
			saved := s.runner.savedStep // belongs to the Checkpoint hook
			err := v.save(ctx, s.runner)
			s.runner.savedStep = saved
			if s.runner.watchdog != nil {
				s.runner.watchdog.ReportError(err)
			}
			if isDiskFull(err) {
				s.Warn("fit: the best checkpoint so far stays, as there is no room for a better one", "error", err)
				*b = before
				return nil
			}
			return err
		}}
}

// openBest opens the directory of the best checkpoint. It returns an error if the directory
// contains a checkpoint and the run does not resume.
func (v *saver) openBest(ctx context.Context, s *State) error {
	if err := v.open(ctx, s.runner); err != nil || !s.IsChief() {
		return err
	}
	last, err := v.manager.Latest(ctx)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = last.Close()
	}
	if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) {
		return err
	}
	if !s.ResumeEnabled() {
		return optionError("hook keep best", "give another directory, or resume the run",
			"%s has a checkpoint of another run", v.path)
	}
	return nil
}

func (s *State) isRecordStep() bool { return s.runner.recordStep == s.step }
