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
	// Keep is the number of newest checkpoints to keep; 0 means 3, and a negative number keeps all.
	Keep int
	// With are variables to save in addition to the variables of the step's store and the
	// strategy's scope. Without are variables that are not saved.
	With, Without []checkpoint.Variable
	// Restore controls how strictly a resume compares the variables. The zero value requires
	// exactly the step's variables.
	Restore checkpoint.RestoreOptions
	// Background lets the next steps begin as soon as the saved values are copied to the host's
	// memory. Saves to a URL always run in the background.
	Background bool
	// LocalCheckpoints enables local checkpoints between the checkpoints of this hook, if it has a Folder.
	Near LocalCheckpoints
	// Retention selects the checkpoints that are kept in addition to the Keep newest ones: each
	// k-th step, and the best ones by a metric of the run. Its field Last must be 0.
	Retention checkpoint.Retention
}

const defaultKeep = 3

// Checkpoint saves the run in a directory of checkpoints (see package checkpoint): after each step
// that is a multiple of every (0: after none), at the end of the run, and when the run is
// interrupted. A checkpoint contains all variables of the step's store and of the strategy's scope,
// the sums of the step's metrics, the position in the data, the settings and the state of the other
// hooks. With [Options].Resume a run resumes from it: with the same losses on the same mesh, and
// with losses that are equal up to rounding on another mesh.
//
// dir is a folder that all processes can access, or the URL of an object store whose scheme an
// imported package registered, such as "gs://bucket/run"; see package storage. Each process saves
// the shards of its own devices with a [checkpoint.Manager], and keeps a copy of them in host
// memory during the save.
//
// A save waits for the launched steps. With CheckpointOptions.Background the following steps run
// during the save, and its errors are returned by the next save or at the end of the run. A full
// disk does not end the run: the hook logs a warning and saves again when the next save is due; the
// earlier checkpoints are unchanged. If the last save fails, the run's error matches [ErrSave].
//
// A run that ends with a [*train.NonFiniteError] saves no checkpoint at its end.
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

// saver saves checkpoints of a run and finds the checkpoint to resume from.
type saver struct {
	path    string
	opts    CheckpointOptions
	manager *checkpoint.Manager // set while a run is active
	// took is the duration of the last save, and total is the duration of the last completed save.
	// slow reports that the warning about slow saves was logged.
	took, total time.Duration
	slow        bool
	// clear reports that the next save must first remove all later checkpoints, because they are
	// damaged.
	clear bool
	// near is the saver of local checkpoints, or nil. store is set only in the saver of local
	// checkpoints.
	near  *saver
	store storage.Store
}

// background reports whether the next steps run during a save.
func (v *saver) background() bool {
	return v.opts.Background || v.store != nil || storage.IsURL(v.path)
}

// open opens the checkpoint manager of this process.
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

// writable checks that files can be created in a directory.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// settings returns the settings of the run and the initial seed of its store.
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

// full reports whether a save failed because the disk or a quota is full. A later save may succeed.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// group returns the variables that a checkpoint contains.
func (v *saver) group(r *run) checkpoint.Group {
	g := checkpoint.Strategy(r.strategy, r.train.Store())
	if r.saver != nil { // KeepBest saves the same variables
		g = g.With(r.saver.opts.With...).Without(r.saver.opts.Without...)
	}
	// The sums of the step's metrics are saved in the point.
	if state := r.train.MetricState(); state != nil {
		g = g.Without(state)
	}
	return g
}

// save saves the state after the last step. All processes must call it.
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

// write saves the shards of this process. It also returns errors of the previous background
// save.
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
	if total := m.LastSaveTimes().Total; total > 0 {
		v.total = total
	}
	err = m.Save(ctx, step, v.group(r), opts)
	if err == nil && !v.background() {
		err = v.wait(ctx, r)
	}
	before, of := errors.AsType[*checkpoint.BackgroundError](err)
	if err == nil || errors.Is(err, checkpoint.ErrNotRemoved) || of && before.Step < step {
		if v.store == nil {
			r.saved = step // also if the save is still running
		} else {
			r.savedNear = step
		}
	}
	return v.failed(r, err)
}

// wait waits for the running save. Process 0 first meets the other processes, whose shards are
// complete then. If a process is lost, process 0 learns it from that exchange immediately, and does
// not have to wait for the missing shards.
func (v *saver) wait(ctx context.Context, r *run) error {
	if !r.state.First() {
		return r.agree(ctx, v.manager.Wait(ctx), nil)
	}
	if err := r.agree(ctx, nil, nil); err != nil {
		return err
	}
	return v.manager.Wait(ctx)
}

// failed converts errors of a save. A checkpoint that could not be removed is only a warning.
func (v *saver) failed(r *run, err error) error {
	if errors.Is(err, checkpoint.ErrNotRemoved) {
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

// leaving limits the wait for the shards of a lost process.
const leaving = 10 * time.Second

// hurry limits the wait for the shards of other processes at the end of a run with an error: by the
// constant leaving if a process may be lost, or by the deadline of the interrupt.
func (v *saver) hurry(r *run, err error) {
	if v.near != nil {
		v.near.hurry(r, err)
	}
	if v.manager == nil || !r.several() || err == nil {
		return
	}
	if stopped, ok := errors.AsType[*interrupt.Error](err); !ok && !r.agreed {
		v.manager.LimitWait(leaving)
	} else if ok && !stopped.Notice.Deadline.IsZero() {
		v.manager.LimitWait(time.Until(stopped.Notice.Deadline))
	}
}

// end waits for the running save at the end of the run and returns its error. It aborts the save if
// the watchdog has ended the run.
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
		go func() { // a process may be lost during the last save
			if r.suspected(waiting) != nil {
				m.LimitWait(leaving)
			}
		}()
	}
	return v.failed(r, m.Close())
}

// shared returns the part of the point that all processes know together. All processes must call
// it.
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

// point completes p with the settings, the metrics and the state of the hooks, and encodes it.
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

// last saves the final checkpoint, unless it exists already or the state of the run must not be
// saved.
func (r *run) last(ctx context.Context, err error) error {
	if r.saver == nil || r.state.began.IsZero() && r.pending == nil || r.state.step <= r.saved {
		return nil
	}
	if errors.As(err, new(*train.NonFiniteError)) || errors.As(err, new(*replay.Error)) {
		return nil
	}
	if r.several() && err != nil && !r.agreed && !errors.Is(err, errShort) {
		return nil // the other processes are at another place
	}
	if stuck, ok := errors.AsType[*watchdog.StuckError](r.stuck()); ok && (r.several() || stuck.Doing != watchdog.Input.String()) {
		return nil // a save would block, too
	}
	if stopped, ok := errors.AsType[*interrupt.Error](err); ok {
		r.hurry(stopped.Notice)
	}
	r.does(watchdog.Save, "the last checkpoint")
	saved := r.saver.save(context.WithoutCancel(ctx), r)
	r.saving(saved)
	return saved
}
