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

// BestOptions say which of two values of a metric is better. By the zero value a lower one is.
type BestOptions struct {
	// Maximize says that a higher value is better, as of an accuracy.
	Maximize bool
	// MinDelta is by how much a value must be better than the best so far to count as better.
	MinDelta float64
}

// best follows a metric. A NaN is never the best.
type best struct {
	metric string
	opts   BestOptions
	// Value is the best so far, of step Step; none was seen if Step is 0. Since counts the records
	// since then.
	Value float64
	Step  int64
	Since int
}

// better takes a value, and reports whether it is the best so far.
func (b *best) better(step int64, value float64) bool {
	gain := b.Value - value
	if b.opts.Maximize {
		gain = -gain
	}
	if math.IsNaN(value) || b.Step > 0 && !(gain > b.opts.MinDelta) {
		b.Since++
		return false
	}
	b.Value, b.Step, b.Since = value, step, 0
	return true
}

// bestState is the form of a best in a checkpoint. The value is text, as JSON has no infinity.
type bestState struct {
	Metric string `json:"metric"`
	Value  string `json:"value"`
	Step   int64  `json:"step"`
	Since  int    `json:"since"`
}

func (b *best) save() ([]byte, error) {
	return json.Marshal(bestState{b.metric, strconv.FormatFloat(b.Value, 'g', -1, 64), b.Step, b.Since})
}

func (b *best) load(data []byte) error {
	var saved bestState
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	value, err := strconv.ParseFloat(saved.Value, 64)
	if err != nil {
		return err
	}
	b.Value, b.Step, b.Since = value, saved.Step, saved.Since
	return nil
}

// newBest returns what follows a metric from a run's beginning.
func newBest(hook, metric string, opts []BestOptions) (*best, error) {
	o, err := only("hook "+hook, opts)
	b := &best{metric: metric, opts: o}
	if metric == "" {
		return b, option("hook "+hook, "give the name of a metric, such as fit.Loss", "no metric: the empty name")
	}
	if b.opts.MinDelta < 0 || math.IsNaN(b.opts.MinDelta) {
		return b, option("hook "+hook, "give 0 or more", "a MinDelta of %v", b.opts.MinDelta)
	}
	return b, err
}

// EarlyStop ends the run when a metric has not become better at patience records in turn that have
// it. The metric is [Loss], another of the step's, or one that a hook measures, such as "held/loss"
// of [Evaluate]. The count is part of a checkpoint: a run that stopped early and resumes takes no
// more steps, unless patience is more than it was.
//
// With several processes all of them come to the same decision, as they compare the same numbers.
func EarlyStop(metric string, patience int, opts ...BestOptions) Hook {
	name := "early stop by " + metric
	b, wrong := newBest(name, metric, opts)
	if patience < 1 && wrong == nil {
		wrong = option("hook "+name, "give at least 1", "a patience of %d records", patience)
	}
	stop := func(s *State) {
		switch {
		case b.Since < patience:
		case b.Step == 0:
			s.Stop(fmt.Sprintf("%s was never a number", metric))
		default:
			s.Stop(fmt.Sprintf("%s has not become better since step %d, when it was %v", metric, b.Step, b.Value))
		}
	}
	return Hook{Name: name, Needs: []string{metric}, wrong: wrong, Save: b.save, Load: b.load,
		reset: func() { *b = best{metric: b.metric, opts: b.opts} },
		Begin: func(_ context.Context, s *State) error {
			stop(s) // a run that had stopped, unless there is more patience now
			return nil
		},
		Record: func(_ context.Context, s *State) error {
			if value, ok := s.Value(metric); ok && !b.better(s.Step(), value) {
				stop(s)
			}
			return nil
		}}
}

// Finite ends the run with a [*train.NonFiniteError] at the first record at which one of the
// metrics, or the loss if none is given, is a NaN or an infinity. A checkpoint of that step is not
// saved. [train.NonFinite] decides within each step instead, and leaves the variables as they were.
func Finite(metrics ...string) Hook {
	if len(metrics) == 0 {
		metrics = []string{Loss}
	}
	return Hook{Name: "finite", Needs: metrics, Record: func(_ context.Context, s *State) error {
		for _, m := range s.Metrics() {
			if (math.IsNaN(m.Value) || math.IsInf(m.Value, 0)) && slices.Contains(metrics, m.Name) {
				return &train.NonFiniteError{Function: s.run.train.Name(), Step: s.Step(), What: fmt.Sprintf("%s (%v)", m.Name, m.Value), Applied: true}
			}
		}
		return nil
	}}
}

// KeepBest saves a checkpoint of the run in a directory of its own, a folder or a URL, whenever a metric
// is better than it was before, and keeps the last of them. Such a checkpoint is like those of [Checkpoint], so a
// run can also resume from it. The best value is part of a checkpoint: a run that resumes goes on
// to compare with it.
//
// A disk that is full does not end the run: the hook warns, and the checkpoint before stays.
func KeepBest(dir, metric string, opts ...BestOptions) Hook {
	name := "keep best by " + metric
	b, wrong := newBest(name, metric, opts)
	v := &saver{path: dir, opts: CheckpointOptions{Keep: 1}}
	var before best
	return Hook{Name: name, Files: []string{dir}, Needs: []string{metric}, wrong: wrong, Save: b.save, Load: b.load,
		reset: func() { *b = best{metric: b.metric, opts: b.opts} },
		Begin: v.openBest,
		End: func(_ context.Context, s *State, err error) error {
			v.hurry(s.run, err)
			return v.end(s.run)
		},
		due: func(s *State) bool {
			value, ok := s.Value(metric)
			before = *b
			return ok && s.atRecord() && b.better(s.Step(), value)
		},
		keep: func(ctx context.Context, s *State) error {
			v.clear = true       // in the place of one that the run saved before it was killed
			saved := s.run.saved // which is that of the Checkpoint hook
			err := v.save(ctx, s.run)
			s.run.saved = saved
			if s.run.dog != nil {
				s.run.dog.Trouble(err)
			}
			if full(err) {
				s.Warn("fit: the best checkpoint so far stays, as there is no room for a better one", "error", err)
				*b = before
				return nil
			}
			return err
		}}
}

// openBest opens a directory of the best checkpoint.
func (v *saver) openBest(ctx context.Context, s *State) error {
	if err := v.open(ctx, s.run); err != nil || !s.First() {
		return err
	}
	last, err := v.manager.Latest(ctx)
	if errors.Is(err, checkpoint.ErrNone) {
		return nil
	}
	if err == nil {
		err = last.Close()
	}
	if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) {
		return err
	}
	if !s.Resumes() {
		return option("hook keep best", "give another directory, or resume the run", "%s has a checkpoint of another run", v.path)
	}
	return nil
}

// atRecord reports whether the last step is a record.
func (s *State) atRecord() bool { return s.run.record == s.step }
