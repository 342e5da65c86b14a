package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"syscall"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/replay"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// CheckpointOptions configure a [Checkpoint] hook. The zero value works.
type CheckpointOptions struct {
	// Keep is the number of checkpoints to keep; 0 is 3, and a negative number keeps all.
	Keep int
	// With are variables to save beside those of the step's store and the strategy's scope, and
	// Without are variables of these that are not saved.
	With, Without []checkpoint.Variable
	// Restore says how strict a resume is. The zero value asks for exactly the step's variables.
	Restore checkpoint.RestoreOptions
	// Background lets the next steps begin as soon as what is saved is copied to the host's memory. To
	// a URL it is always so.
	Background bool
	// Near, if it has a Folder, saves between these checkpoints on the hosts themselves.
	Near Near
	// Retention says which checkpoints stay beside the newest, of which Keep has the number: each
	// k-th step, and the best by a metric of the run.
	Retention checkpoint.Retention
}

const defaultKeep = 3

// Checkpoint saves the run in a directory of checkpoints, see package checkpoint: after each of the
// steps that every says (0: after none), at the end of the run, and when the run is interrupted. A
// checkpoint holds all variables of the step's store and of the strategy's scope, the sums of the
// step's metrics, the position in the data, the settings and what the other hooks keep, so that
// [Options].Resume goes on as if nothing had happened: with the same losses on the same mesh, and
// with losses that differ by rounding on another.
//
// dir is a folder that all processes reach, or the URL of an object store whose scheme an imported
// package registered, such as "gs://bucket/run"; see package storage. Each process saves what its
// devices hold, by a [checkpoint.Manager], and has a copy of that in the host's memory meanwhile.
//
// A save waits for the steps under way. With CheckpointOptions.Background it goes on beside the
// next steps, and what goes wrong is found at the next save or at the end of the run. A disk that
// is full does not end the run: the hook warns, and tries again when the next save is due; the
// earlier checkpoints stay as they are. If the last save fails, the run's error matches [ErrSave].
//
// No checkpoint is saved at the end of a run that numbers ended which are not finite
// ([*train.NonFiniteError]).
func Checkpoint(dir string, every Every, opts ...CheckpointOptions) Hook {
	v := &saver{path: dir}
	var wrong error
	if v.opts, wrong = only("hook checkpoint "+dir, opts); v.opts.Retention.Last != 0 {
		wrong = option("hook checkpoint "+dir, "give the number by Keep", "option Retention.Last is %d", v.opts.Retention.Last)
	}
	near := v.opts.Near
	if v.near = near.saver(v.opts); wrong == nil {
		wrong = near.check(dir)
	}
	far := func(s *State) bool { return every.due(s.step) && s.step > s.run.saved }
	return Hook{Name: "checkpoint " + dir, Every: every, also: near.Every, Files: []string{dir}, saver: v, wrong: wrong,
		due: func(s *State) bool { return far(s) || near.Every.due(s.step) && s.step > s.run.savedNear },
		keep: func(ctx context.Context, s *State) error {
			if !far(s) {
				v.saveNear(ctx, s)
				return nil
			}
			err := v.save(ctx, s.run)
			s.run.saving(err)
			if full(err) {
				s.Warn("fit: training goes on without this checkpoint", "error", err)
				return nil
			}
			return err
		}}
}

// saver saves a run and finds what was saved.
type saver struct {
	path    string
	opts    CheckpointOptions
	manager *checkpoint.Manager // of a run that has begun
	// took is how long the last save took, total the last one that was over, and slow says that it was
	// said to be too long.
	took, total time.Duration
	slow        bool
	// clear says that checkpoints after the step that is saved have to go: they are damaged.
	clear bool
	// near is the saver on the hosts, nil without one. store is its own, and nil of any other.
	near  *saver
	store storage.Store
}

// background reports whether the steps go on beside a save.
func (v *saver) background() bool {
	return v.opts.Background || v.store != nil || storage.IsURL(v.path)
}

// open opens the place of the checkpoints on this process.
func (v *saver) open(ctx context.Context, r *run) (err error) {
	keep := v.opts.Retention
	keep.Last = max(cmp.Or(v.opts.Keep, defaultKeep), 0)
	v.total = 0
	opts := checkpoint.ManagerOptions{Strategy: r.strategy, Retention: keep, Logger: r.log}
	if v.store != nil {
		v.manager, err = checkpoint.NewManager(ctx, v.store, opts)
		return err
	}
	v.manager, err = checkpoint.OpenManager(ctx, v.path, opts)
	if err != nil || !r.state.First() || storage.IsURL(v.path) {
		return err
	}
	if err := writable(v.path); err != nil {
		return notSaved(v.path, r.state.step, err)
	}
	return nil
}

// writable makes a file in a directory and removes it.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// settings are the run's, with the seed of its store.
func (r *run) settings() map[string]string {
	all := maps.Clone(r.options.Settings)
	if all == nil {
		all = map[string]string{}
	}
	if store := r.train.Store(); store != nil {
		if seed, ok := store.GetParam("/" + model.ParamInitialSeed); ok {
			all[model.ParamInitialSeed] = fmt.Sprint(seed)
		}
	}
	return all
}

// full reports whether a save failed for want of room, so that a later one may succeed.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// group are the variables of a run.
func (v *saver) group(r *run) checkpoint.Group {
	g := checkpoint.Strategy(r.strategy, r.train.Store())
	if r.saver != nil { // those of the best are the same
		g = g.With(r.saver.opts.With...).Without(r.saver.opts.Without...)
	}
	// The sums of the step's metrics are part of the point, whatever their variable is called.
	if state := r.train.MetricState(); state != nil {
		g = g.Without(state)
	}
	return g
}

// save saves the run as it is after the last step. All processes call it.
func (v *saver) save(ctx context.Context, r *run) error {
	start := time.Now()
	err := v.write(ctx, r)
	v.took = max(time.Since(start), v.total)
	if grace := interrupt.Grace(ctx); v.took > grace && !v.slow {
		v.slow = true
		r.log.Warn("fit: a save takes longer than the process is given when it is to end; save more often, so that less is lost, or raise the grace period",
			"took", v.took.Round(time.Millisecond), "grace", grace)
	}
	return err
}

// write saves what this process's devices hold. In the background, what went wrong with the save
// before is its error, too.
func (v *saver) write(ctx context.Context, r *run) error {
	step, m := r.state.step, v.manager
	p, err := r.shared(ctx)
	if err != nil {
		return notSaved(v.path, step, err)
	}
	opts := checkpoint.SaveOptions{}
	var mine error
	if r.state.First() {
		r.savesRun = v == r.saver
		if opts.Metadata, mine = r.point(p); mine == nil && v.opts.Retention.Best > 0 {
			opts.Metrics = map[string]float64{}
			for _, x := range r.state.latest {
				opts.Metrics[x.Name] = x.Value
			}
		}
	}
	if err := r.agree(ctx, mine, nil); err != nil {
		return notSaved(v.path, step, err)
	}
	if v.clear {
		if err := r.agree(ctx, m.RemoveAfter(ctx, step-1), nil); err != nil {
			return notSaved(v.path, step, err)
		}
		v.clear = false
	}
	if total := m.Took().Total; total > 0 {
		v.total = total
	}
	err = m.Save(ctx, step, v.group(r), opts)
	if err == nil && !v.background() {
		err = v.wait(ctx, r)
	}
	before, of := errors.AsType[*checkpoint.BackgroundError](err)
	if err == nil || errors.Is(err, checkpoint.ErrKept) || of && before.Step < step {
		if v.store == nil {
			r.saved = step // or it is under way
		} else {
			r.savedNear = step
		}
	}
	return v.failed(r, err)
}

// wait waits for the save under way. Process 0 meets the others before it waits for the checkpoint:
// their parts are there then, and of one that is lost it hears from the devices at once, and not by
// parts that do not come.
func (v *saver) wait(ctx context.Context, r *run) error {
	if !r.state.First() {
		return r.agree(ctx, v.manager.Wait(ctx), nil)
	}
	if err := r.agree(ctx, nil, nil); err != nil {
		return err
	}
	return v.manager.Wait(ctx)
}

// failed is the error of a save, if it is one.
func (v *saver) failed(r *run, err error) error {
	if errors.Is(err, checkpoint.ErrKept) {
		r.log.Warn("fit: an old checkpoint stays", "error", err)
		return nil
	}
	if err == nil {
		return nil
	}
	step := r.state.step
	if of, ok := errors.AsType[*checkpoint.BackgroundError](err); ok {
		step = of.Step
	}
	return notSaved(v.path, step, err)
}

// leaving is how long a run that has lost a process waits for that one's part of a save.
const leaving = 10 * time.Second

// hurry bounds the wait for the parts of other processes at the end of a run: one that was lost has
// put its part already, or never will, and nobody waits for a part longer than until the process is
// ended.
func (v *saver) hurry(r *run, err error) {
	if v.near != nil {
		v.near.hurry(r, err)
	}
	if v.manager == nil || !r.several() || err == nil {
		return
	}
	if stopped, ok := errors.AsType[*interrupt.Error](err); !ok && !r.agreed {
		v.manager.Hurry(leaving)
	} else if ok && !stopped.Notice.Deadline.IsZero() {
		v.manager.Hurry(time.Until(stopped.Notice.Deadline))
	}
}

// end waits for the save under way at the end of a run, if there is one, and returns its error. A
// run that is stuck gives it up.
func (v *saver) end(r *run) error {
	m := v.manager
	if v.manager = nil; m == nil {
		return nil
	}
	if r.stuck() != nil {
		m.Abort()
	}
	if r.dog != nil && r.several() {
		waiting, over := context.WithCancel(context.Background())
		defer over()
		go func() { // a process may be lost after all have agreed, with its part of the last save
			if r.suspected(waiting) != nil {
				m.Hurry(leaving)
			}
		}()
	}
	return v.failed(r, m.Close())
}

// shared returns what all processes know together of the run as it is. All processes call it.
func (r *run) shared(ctx context.Context) (*point, error) {
	p := &point{Version: pointVersion, Step: r.state.step, Position: r.at, Metrics: r.train.MetricNames()}
	var err error
	if p.Sums, err = r.sums(ctx); err != nil || !r.several() {
		return p, err
	}
	mine, err := r.at.Input.Marshal()
	if err != nil {
		return nil, err
	}
	all, err := r.gather(ctx, fmt.Sprintf("fit: positions after step %d", p.Step), mine)
	if err != nil {
		return nil, err
	}
	var states []input.State
	for _, text := range all {
		state, err := input.ParseState(text)
		if err != nil {
			return nil, err
		}
		states = append(states, state)
	}
	p.Position.Input, err = joinPositions(states)
	return p, err
}

// point returns the metadata of a checkpoint of the run as it is.
func (r *run) point(p *point) (map[string]string, error) {
	p.Settings, p.Hooks = r.settings(), map[string][]byte{}
	p.Pending, p.Latest = textOf(r.pending), textOf(r.known())
	for i := range r.hooks {
		h := &r.hooks[i]
		if h.Save == nil {
			continue
		}
		err := r.call(h, func() (err error) {
			p.Hooks[h.Name], err = h.Save()
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return p.encode()
}

// last saves the run when it ends, if there is something to save and nothing is wrong with it.
func (r *run) last(ctx context.Context, err error) error {
	if r.saver == nil || r.state.began.IsZero() && r.pending == nil || r.state.step <= r.saved {
		return nil
	}
	if errors.As(err, new(*train.NonFiniteError)) || errors.As(err, new(*replay.Error)) {
		return nil
	}
	if r.several() && err != nil && !r.agreed && !errors.Is(err, errShort) {
		return nil // the other processes are elsewhere
	}
	if stuck, ok := errors.AsType[*watchdog.StuckError](r.stuck()); ok && (r.several() || stuck.Doing != watchdog.Input.String()) {
		return nil // a save would wait, too
	}
	if stopped, ok := errors.AsType[*interrupt.Error](err); ok {
		r.hurry(stopped.Notice)
	}
	r.does(watchdog.Save, "the last checkpoint")
	saved := r.saver.save(context.WithoutCancel(ctx), r)
	r.saving(saved)
	return saved
}
