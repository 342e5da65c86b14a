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

// CheckpointOptions configures a [Checkpoint] hook.
type CheckpointOptions struct {
	// Keep is the number of newest checkpoints to keep; 0 means 3, and a negative number keeps all.
	Keep int
	// Include are variables to save in addition to the variables of the step's store and the
	// strategy's scope. Exclude are variables that are not saved.
	Include, Exclude []checkpoint.Variable
	// Restore controls how strictly a resume compares the variables. The zero value requires
	// exactly the step's variables.
	Restore checkpoint.RestoreOptions
	// Background lets the next steps begin as soon as the saved values are copied to the host's
	// memory. Saves to a URL always run in the background.
	Background bool
	// Local enables local checkpoints between the checkpoints of this hook, if it has a Folder.
	Local LocalCheckpoints
	// Retention selects the checkpoints that are kept in addition to the Keep newest ones: each
	// k-th step, and the best ones by a metric of the run. Its field Last must be 0.
	Retention checkpoint.Retention
}

const defaultKeep = 3

// Checkpoint saves the run in a directory of checkpoints (see package checkpoint): after each step
// that is a multiple of every (0: after none), at the end of the run, and when the run is
// interrupted. A checkpoint contains all variables of the step's store and of the strategy's scope,
// the sums of the step's metrics, the position in the data, the settings and the state of the other
// hooks. A run with [Options].Resume resumes from the last checkpoint. Its losses are the same on
// the same mesh, and equal up to rounding on another mesh.
//
// dir is a folder that all processes can access, or the URL of an object store whose scheme an
// imported package registered, such as "gs://bucket/run"; see package storage. Each process saves
// the shards of its own devices with a [checkpoint.Manager], and keeps a copy of them in host
// memory during the save.
//
// A save waits for the launched steps. With CheckpointOptions.Background, the following steps run
// during the save, and its errors are returned by the next save or at the end of the run. If the
// disk is full, the hook logs a warning and saves again at the next interval; the earlier
// checkpoints are unchanged. If the last save fails, the run's error matches [ErrSave].
//
// A run that ends with a [*train.NonFiniteError] saves no checkpoint at its end.
func Checkpoint(dir string, every Every, opts ...CheckpointOptions) Hook {
	v := &saver{path: dir}
	var wrong error
	if v.opts, wrong = singleOption("hook checkpoint "+dir, opts); v.opts.Retention.Last != 0 {
		wrong = optionError("hook checkpoint "+dir, "give the number by Keep", "option Retention.Last is %d",
			v.opts.Retention.Last)
	}
	local := v.opts.Local
	if v.local = local.newSaver(v.opts); wrong == nil {
		wrong = local.validate(dir)
	}
	isDue := func(s *State) bool { return every.isDue(s.step) && s.step > s.runner.savedStep }
	return Hook{Name: "checkpoint " + dir, Every: every, saveEvery: local.Every, Files: []string{dir}, saver: v,
		err:        wrong,
		shouldSave: func(s *State) bool { return isDue(s) || local.Every.isDue(s.step) && s.step > s.runner.savedLocalStep },
		saveVariables: func(ctx context.Context, s *State) error {
			if !isDue(s) {
				v.saveLocal(ctx, s)
				return nil
			}
			err := v.save(ctx, s.runner)
			s.runner.reportSave(err)
			if isDiskFull(err) {
				s.Warn("fit: training continues without this checkpoint", "error", err)
				return nil
			}
			return err
		}}
}

// saver saves the checkpoints of a run and finds the checkpoint to resume from.
type saver struct {
	path    string
	opts    CheckpointOptions
	manager *checkpoint.Manager // set while a run is active
	// lastDuration is the duration of the last save, and completedDuration the total duration of
	// the last completed save. warnedSlow reports that the warning about slow saves was logged.
	lastDuration, completedDuration time.Duration
	warnedSlow                      bool
	// removeLater reports that the next save must first remove all later checkpoints, which are
	// damaged.
	removeLater bool
	// local is the saver of local checkpoints, or nil. store is set only in the saver of local
	// checkpoints.
	local *saver
	store storage.Store
}

// inBackground reports whether the run continues with the next steps during a save.
func (v *saver) inBackground() bool {
	return v.opts.Background || v.store != nil || storage.IsURL(v.path)
}

func (v *saver) open(ctx context.Context, r *runner) (err error) {
	retention := v.opts.Retention
	retention.Last = max(cmp.Or(v.opts.Keep, defaultKeep), 0)
	v.completedDuration = 0
	opts := checkpoint.ManagerOptions{Strategy: r.strategy, Retention: retention, Logger: r.log}
	if v.store != nil {
		v.manager, err = checkpoint.NewManager(ctx, v.store, opts)
		return err
	}
	v.manager, err = checkpoint.OpenManager(ctx, v.path, opts)
	if err != nil || !r.state.IsChief() || storage.IsURL(v.path) {
		return err
	}
	if err := checkWritable(v.path); err != nil {
		return saveError(v.path, r.state.step, err)
	}
	return nil
}

func checkWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// settings returns the settings to save in checkpoints: the settings of the run and the initial
// seed of its store.
func (r *runner) settings() map[string]string {
	all := maps.Clone(r.options.Settings)
	if all == nil {
		all = map[string]string{}
	}
	if store := r.trainStep.Store(); store != nil {
		if seed, ok := store.GetParam("/" + model.ParamInitialSeed); ok {
			all[model.ParamInitialSeed] = fmt.Sprint(seed)
		}
	}
	return all
}

// isDiskFull reports whether a save failed because the disk or a quota is full. A later save may
// succeed.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func (v *saver) variables(r *runner) checkpoint.Group {
	g := checkpoint.StrategyGroup(r.strategy, r.trainStep.Store())
	if r.saver != nil { // KeepBest saves the same variables
		g = g.With(r.saver.opts.Include...).Without(r.saver.opts.Exclude...)
	}
	// The sums of the step's metrics are saved in the saved state.
	if state := r.trainStep.MetricState(); state != nil {
		g = g.Without(state)
	}
	return g
}

// save saves a checkpoint of the current step. All processes must call it.
func (v *saver) save(ctx context.Context, r *runner) error {
	start := time.Now()
	err := v.write(ctx, r)
	v.lastDuration = max(time.Since(start), v.completedDuration)
	if grace := interrupt.GracePeriod(ctx); v.lastDuration > grace && !v.warnedSlow {
		v.warnedSlow = true
		r.log.Warn("fit: a save takes longer than the grace period at the end of the process; save more often or raise "+
			"the grace period",
			"took", v.lastDuration.Round(time.Millisecond), "grace", grace)
	}
	return err
}

// write saves the shards of this process. It also returns the error of the previous background
// save.
func (v *saver) write(ctx context.Context, r *runner) error {
	step, manager := r.state.step, v.manager
	p, err := r.sharedState(ctx)
	if err != nil {
		return saveError(v.path, step, err)
	}
	opts := checkpoint.SaveOptions{}
	var localErr error
	if r.state.IsChief() {
		r.isMainSave = v == r.saver
		if opts.Metadata, localErr = r.encodeState(p); localErr == nil && v.opts.Retention.Best > 0 {
			opts.Metrics = map[string]float64{}
			for _, x := range r.state.latest {
				opts.Metrics[x.Name] = x.Value
			}
		}
	}
	if err := r.exchangeVotes(ctx, localErr, nil); err != nil {
		return saveError(v.path, step, err)
	}
	if v.removeLater {
		if err := r.exchangeVotes(ctx, manager.RemoveAfter(ctx, step-1), nil); err != nil {
			return saveError(v.path, step, err)
		}
		v.removeLater = false
	}
	if total := manager.LastSaveDurations().Total; total > 0 {
		v.completedDuration = total
	}
	err = manager.Save(ctx, step, v.variables(r), opts)
	if err == nil && !v.inBackground() {
		err = v.wait(ctx, r)
	}
	backgroundErr, isBackground := errors.AsType[*checkpoint.BackgroundError](err)
	if err == nil || errors.Is(err, checkpoint.ErrNotRemoved) || isBackground && backgroundErr.Step < step {
		if v.store == nil {
			r.savedStep = step // also if the save is still running
		} else {
			r.savedLocalStep = step
		}
	}
	return v.convertError(r, err)
}

// wait waits for the running save. The processes first exchange votes when their shards are
// complete. If a process is lost, the exchange fails immediately, so that process 0 does not wait
// for the missing shards.
func (v *saver) wait(ctx context.Context, r *runner) error {
	if !r.state.IsChief() {
		return r.exchangeVotes(ctx, v.manager.Wait(ctx), nil)
	}
	if err := r.exchangeVotes(ctx, nil, nil); err != nil {
		return err
	}
	return v.manager.Wait(ctx)
}

// convertError adds the directory and the step to an error of a save. If only the removal of an old
// checkpoint failed, it logs a warning and returns nil.
func (v *saver) convertError(r *runner, err error) error {
	if errors.Is(err, checkpoint.ErrNotRemoved) {
		r.log.Warn("fit: an old checkpoint was not removed", "error", err)
		return nil
	}
	if err == nil {
		return nil
	}
	step := r.state.step
	if background, ok := errors.AsType[*checkpoint.BackgroundError](err); ok {
		step = background.Step
	}
	return saveError(v.path, step, err)
}

// lostProcessWait limits the wait for the shards of a lost process.
const lostProcessWait = 10 * time.Second

// limitWait limits the wait for the shards of other processes at the end of a run with an error.
// The limit is lostProcessWait if a process may be lost, or the deadline of an interrupt.
func (v *saver) limitWait(r *runner, err error) {
	if v.local != nil {
		v.local.limitWait(r, err)
	}
	if v.manager == nil || !r.isMultiProcess() || err == nil {
		return
	}
	if stopped, ok := errors.AsType[*interrupt.Error](err); !ok && !r.inAgreement {
		v.manager.LimitWait(lostProcessWait)
	} else if ok && !stopped.Notice.Deadline.IsZero() {
		v.manager.LimitWait(time.Until(stopped.Notice.Deadline))
	}
}

// close waits for the running save at the end of the run and returns its error. It aborts the save
// if the watchdog has ended the run.
func (v *saver) close(r *runner) error {
	manager := v.manager
	if v.manager = nil; manager == nil {
		return nil
	}
	if r.watchdogError() != nil {
		manager.Abort()
	}
	if r.watchdog != nil && r.isMultiProcess() {
		waiting, stop := context.WithCancel(context.Background())
		defer stop()
		go func() { // a process may be lost during the last save
			if r.waitForSuspect(waiting) != nil {
				manager.LimitWait(lostProcessWait)
			}
		}()
	}
	return v.convertError(r, manager.Close())
}

// sharedState returns the part of the saved state that is the same on all processes. All processes
// must call it.
func (r *runner) sharedState(ctx context.Context) (*savedState, error) {
	p := &savedState{Version: snapshotVersion, Step: r.state.step, Position: r.position,
		Metrics: r.trainStep.MetricNames()}
	var err error
	if p.Sums, err = r.metricSums(ctx); err != nil || !r.isMultiProcess() {
		return p, err
	}
	position, err := r.position.Input.Marshal()
	if err != nil {
		return nil, err
	}
	positions, err := r.gather(ctx, fmt.Sprintf("fit: positions after step %d", p.Step), position)
	if err != nil {
		return nil, err
	}
	var states []input.State
	for _, text := range positions {
		state, err := input.ParseState(text)
		if err != nil {
			return nil, err
		}
		states = append(states, state)
	}
	p.Position.Input, err = joinPositions(states)
	return p, err
}

// encodeState adds the settings, the metrics and the state of the hooks to p, and encodes p as
// checkpoint metadata.
func (r *runner) encodeState(p *savedState) (map[string]string, error) {
	p.Settings, p.Hooks = r.settings(), map[string][]byte{}
	p.Pending, p.Latest = encodeMetrics(r.pendingMetrics), encodeMetrics(r.latestMetrics())
	for i := range r.hooks {
		h := &r.hooks[i]
		if h.Save == nil {
			continue
		}
		err := r.callHook(h, func() (err error) {
			p.Hooks[h.Name], err = h.Save()
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return p.encode()
}

// saveLast saves the final checkpoint. It does nothing if that checkpoint exists, or if err means
// that the state must not be saved.
func (r *runner) saveLast(ctx context.Context, err error) error {
	if r.saver == nil || r.state.startTime.IsZero() && r.pendingMetrics == nil || r.state.step <= r.savedStep {
		return nil
	}
	if errors.As(err, new(*train.NonFiniteError)) || errors.As(err, new(*replay.Error)) {
		return nil
	}
	if r.isMultiProcess() && err != nil && !r.inAgreement && !errors.Is(err, errDataEnded) {
		return nil // the other processes are in another operation
	}
	if stuck, ok := errors.AsType[*watchdog.StuckError](r.watchdogError()); ok &&
		(r.isMultiProcess() || stuck.Activity != watchdog.Input.String()) {
		return nil // a save would block, too
	}
	if stopped, ok := errors.AsType[*interrupt.Error](err); ok {
		r.warnDeadline(stopped.Notice)
	}
	r.setActivity(watchdog.Save, "the last checkpoint")
	saveErr := r.saver.save(context.WithoutCancel(ctx), r)
	r.reportSave(saveErr)
	return saveErr
}
