package fit

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/interrupt"
)

// shards is how a run saves in the background: with a manager, each process its own shards.
type shards struct {
	store   storage.Store
	manager *checkpoint.Manager
	steps   []int64       // that process 0 found, ascending
	total   time.Duration // of the last save that was over
}

// inShards reports whether the run saves shards in the background: by option, and to a URL.
func (s *saver) inShards() bool { return s.opts.Background || storage.IsURL(s.path) }

// open opens the place of the checkpoints on this process.
func (s *saver) open(ctx context.Context, r *run) (err error) {
	keep := s.opts.Retention
	if keep.Last = s.opts.Keep; keep.Last == 0 {
		keep.Last = defaultKeep
	}
	keep.Last = max(keep.Last, 0)
	s.shards = shards{}
	if s.shards.store, err = storage.Open(ctx, s.path); err != nil {
		return err
	}
	s.shards.manager, err = checkpoint.NewManager(ctx, s.shards.store, checkpoint.ManagerOptions{Strategy: r.strategy, Retention: keep, Logger: r.log})
	if err != nil || !r.state.First() {
		return err
	}
	if !storage.IsURL(s.path) {
		if err := writable(s.path); err != nil {
			return &SaveError{Directory: s.path, Err: err}
		}
	}
	if s.shards.steps, err = s.shards.manager.Steps(ctx); err == nil && len(s.shards.steps) > 0 && !r.options.Resume {
		return s.notEmpty(s.shards.steps)
	}
	return err
}

// notEmpty is the error of a run that does not resume where another has saved.
func (s *saver) notEmpty(steps []int64) error {
	return &ResumeError{Directory: s.path, Step: steps[len(steps)-1], What: "the directory has checkpoints of a run, and Options.Resume is not set",
		Hint: "set it to go on, or give another directory"}
}

// choose opens the last checkpoint that is intact, nil if there is none. Each process reads its
// share of a checkpoint to find that out, and all choose the same.
func (s *saver) choose(ctx context.Context, r *run) (*checkpoint.Checkpoint, error) {
	if err := r.agree(ctx, s.open(ctx, r), nil); err != nil {
		return nil, err
	}
	var passed []error
	for i := len(s.shards.steps) - 1; ; i-- {
		step := int64(-1)
		if i >= 0 {
			step = s.shards.steps[i]
		}
		if r.several() {
			bytes, err := r.strategy.BroadcastBytes(ctx, "fit: the checkpoint to look at", binary.AppendVarint(nil, step))
			if err != nil {
				return nil, err
			}
			step, _ = binary.Varint(bytes)
		}
		if step < 0 {
			break
		}
		c, err := s.shards.manager.Open(ctx, step)
		if err == nil {
			err = c.VerifyShare(ctx, r.strategy.Process(), max(r.strategy.NumProcesses(), 1))
		}
		damaged := errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrNone)
		if damaged {
			r.log.Warn("fit: passing over a damaged checkpoint", "error", err)
			passed, err = append(passed, err), nil
		}
		if err := r.agree(ctx, err, nil); err != nil {
			if c != nil {
				_ = c.Close()
			}
			return nil, err
		}
		bad := damaged
		if r.several() {
			if bad, err = r.strategy.AnyProcess(ctx, damaged); err != nil {
				return nil, err
			}
		}
		if !bad {
			return c, nil
		}
		s.clear = true
		if c != nil {
			_ = c.Close()
		}
	}
	if s.clear {
		return nil, &ResumeError{Directory: s.path, What: "every checkpoint is damaged", Err: errors.Join(passed...), Hint: "remove them to begin anew"}
	}
	return nil, nil
}

// writeShards starts a save of this process's shards. What went wrong with the save before is its
// error, too.
func (s *saver) writeShards(ctx context.Context, r *run, g checkpoint.Group, p *point) error {
	step, m := r.state.step, s.shards.manager
	opts := checkpoint.SaveOptions{}
	var mine error
	if r.state.First() {
		if opts.Metadata, mine = r.point(p); mine == nil && s.opts.Retention.Best > 0 {
			opts.Metrics = map[string]float64{}
			for _, x := range r.state.latest {
				opts.Metrics[x.Name] = x.Value
			}
		}
	}
	if err := r.agree(ctx, mine, nil); err != nil {
		return &SaveError{Directory: s.path, Step: step, Err: err}
	}
	if s.clear {
		if err := r.agree(ctx, m.RemoveAfter(ctx, step-1), nil); err != nil {
			return &SaveError{Directory: s.path, Step: step, Err: err}
		}
		s.clear = false
	}
	if total := m.Took().Total; total > 0 {
		s.shards.total = total
	}
	err := m.Save(ctx, step, g, opts)
	var before *checkpoint.BackgroundError
	if err == nil || errors.As(err, &before) && before.Step < step {
		r.saved = step // it is under way
	}
	return s.saveFailed(r, err)
}

// saveFailed is the error of a save, if it is one.
func (s *saver) saveFailed(r *run, err error) error {
	if errors.Is(err, checkpoint.ErrKept) {
		r.log.Warn("fit: an old checkpoint stays", "error", err)
		return nil
	}
	if err == nil {
		return nil
	}
	step := r.state.step
	if of := (*checkpoint.BackgroundError)(nil); errors.As(err, &of) {
		step = of.Step
	}
	return &SaveError{Directory: s.path, Step: step, Err: err}
}

// leaving is how long a run that has lost a process waits for that one's part of a save.
const leaving = 10 * time.Second

// hurry bounds the wait for the parts of other processes at the end of a run: one that was lost has
// put its part already, or never will, and nobody waits for a part longer than until the process is
// ended.
func (s *saver) hurry(r *run, err error) {
	if s.shards.manager == nil || !r.several() || err == nil {
		return
	}
	var stopped *InterruptedError
	var notice *interrupt.Notice
	switch {
	case errors.As(err, &stopped):
		if errors.As(stopped.Err, &notice) && !notice.Deadline.IsZero() {
			s.shards.manager.Hurry(time.Until(notice.Deadline))
		}
	case !r.agreed:
		s.shards.manager.Hurry(leaving)
	}
}

// end waits for the save under way at the end of a run, if there is one, and returns its error. A
// run that is stuck gives it up.
func (s *saver) end(r *run) (err error) {
	if s.shards.manager != nil {
		if r.stuck() != nil {
			s.shards.manager.Abort()
		}
		err = s.saveFailed(r, s.shards.manager.Close())
	}
	if s.shards.store != nil {
		err = errors.Join(err, s.shards.store.Close())
	}
	s.shards = shards{}
	return err
}

// savedIn returns the last checkpoint at a URL.
func savedIn(url string) (c *checkpoint.Checkpoint, done func() error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	store, err := storage.Open(ctx, url)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	m, err := checkpoint.NewManager(ctx, store, checkpoint.ManagerOptions{})
	if err == nil {
		c, err = m.Latest(ctx)
	}
	done = func() error {
		defer cancel()
		return errors.Join(c.Close(), m.Close(), store.Close())
	}
	if err != nil {
		cancel()
		_ = store.Close()
		return nil, nil, err
	}
	return c, done, nil
}
