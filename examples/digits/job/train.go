package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/interrupt"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Hooks are functions and writers that follow a run. Each may be nil.
type Hooks struct {
	// Show receives tables of the mesh, the devices and the variables, before the first step.
	Show io.Writer
	// Progress is called after each step.
	Progress func(Progress)
	// Compiling is called for a compilation that takes long; see [strategy.Options].
	Compiling func(strategy.Compilation)
}

// Progress says how far a run is.
type Progress struct {
	// Step is the number of steps that are done, out of Steps.
	Step, Steps int
	// Loss is the last loss that was read.
	Loss float64
	// ExamplesPerSecond is the rate since the first step.
	ExamplesPerSecond float64
}

// Result reports the outcome of a run. Its JSON form is the last line of command digits.
type Result struct {
	Data string `json:"data"`
	// Accuracy is the share of the held-out images classified rightly; nil if the run was
	// interrupted before it was known. Of is their number.
	Accuracy *float64 `json:"accuracy"`
	Of       int      `json:"held_out"`
	// Loss is the last training loss that was read, and nil before the first.
	Loss     *float64 `json:"loss"`
	Replicas int      `json:"replicas"`
	Logical  int      `json:"logical"`
	Devices  int      `json:"devices"`
	Batch    int      `json:"batch"`
	Seed     uint64   `json:"seed"`
	// Steps is the number of steps that are done, and Resumed how many of them an earlier run did.
	Steps   int `json:"steps"`
	Resumed int `json:"resumed,omitempty"`
	// Seconds is the time of the whole run. CompileSeconds of them went to tracing and compiling
	// the step, TrainSeconds to the steps, at ExamplesPerSecond.
	Seconds           float64 `json:"seconds"`
	CompileSeconds    float64 `json:"compile_seconds"`
	TrainSeconds      float64 `json:"train_seconds"`
	ExamplesPerSecond float64 `json:"examples_per_second"`
	// Interrupted is true if ctx ended before the run did, here or on another host.
	Interrupted bool `json:"interrupted"`
}

// Load returns the data that the configuration names.
func Load(cfg Config) (Data, error) {
	if cfg.Data != "" {
		return MNIST(cfg.Data)
	}
	return Digits(cfg.Seed)
}

// Run opens the devices, trains, tests and closes. When ctx ends it returns what it has, with
// Interrupted set and ctx's error. Settings that cannot be run are a [*UsageError].
func Run(ctx context.Context, cfg Config, hooks Hooks) (result Result, err error) {
	start := time.Now()
	cfg = cfg.normalize()
	result = Result{Replicas: cfg.Replicas, Logical: cfg.Logical, Devices: cfg.Devices, Batch: cfg.Batch, Seed: cfg.Seed}
	defer func() {
		err = Again(ctx, cfg, result, err)
		result.Seconds = time.Since(start).Seconds()
		result.Interrupted = err != nil && (ctx.Err() != nil || errors.Is(err, context.Canceled))
	}()
	if err := cfg.check(); err != nil {
		return result, err
	}
	data, err := Load(cfg)
	if err != nil {
		return result, err
	}
	if cfg, err = cfg.fit(data); err != nil {
		return result, err
	}
	opts := system.Options{CPUDevices: cfg.Devices, Plugin: cfg.Plugin}
	sys, err := Open(ctx, opts)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	return Train(ctx, sys, cfg, data, hooks)
}

// Open opens the devices. A plugin that is missing, or is none, is a [*UsageError], and so is a
// missing TPU.
func Open(ctx context.Context, opts system.Options) (*system.System, error) {
	sys, err := system.Open(ctx, opts)
	if missing := (*pjrt.FindError)(nil); errors.As(err, &missing) {
		reason := fmt.Sprintf("no %s plugin found: %s", missing.Plugin, missing.Hint)
		if opts.Plugin != "" && len(missing.Tried) > 0 {
			reason = fmt.Sprintf("no %s plugin found: %s: %v", missing.Plugin, opts.Plugin, missing.Tried[len(missing.Tried)-1].Err)
		}
		return nil, &UsageError{Flag: "plugin", Reason: reason, Err: err}
	}
	if errors.Is(err, system.ErrNoTPU) {
		return nil, &UsageError{Flag: "devices", Reason: "0 is the machine's TPU, but it has none: no /dev/accel*, no /dev/vfio/*", Err: err}
	}
	if broken := (*pjrt.PluginError)(nil); errors.As(err, &broken) {
		return nil, &UsageError{Flag: "plugin", Reason: err.Error(), Err: err}
	}
	return sys, err
}

// Train trains and tests on devices that are open. It closes all it makes on them. When ctx ends it
// returns what it has, with Interrupted set and an error that matches context.Canceled; the step
// under way runs to its end. Several hosts stop after the same step, whichever of them is
// interrupted. With Config.Out they save there, and the error is an [*interrupt.Error], whose exit
// code asks for a restart: the next run with these settings goes on, on any number of hosts and
// devices.
func Train(ctx context.Context, sys *system.System, cfg Config, data Data, hooks Hooks) (result Result, err error) {
	start := time.Now()
	cfg = cfg.normalize()
	cfg.Devices = sys.Topology().NumDevices()
	if err := cfg.check(); err != nil {
		return result, err
	}
	if cfg, err = cfg.fit(data); err != nil {
		return result, err
	}
	result = Result{
		Data: data.Name, Of: data.Test.Len(), Replicas: cfg.Replicas, Logical: cfg.Logical,
		Devices: cfg.Devices, Batch: cfg.Batch, Seed: cfg.Seed,
	}
	defer func(ctx context.Context) {
		err = Again(ctx, cfg, result, err)
		result.Seconds = time.Since(start).Seconds()
		result.Interrupted = err != nil && (ctx.Err() != nil || errors.Is(err, context.Canceled))
	}(ctx)
	opts, err := options(sys, cfg)
	if err != nil {
		return result, err
	}
	opts.Compiling = hooks.Compiling
	strat, err := strategy.New(sys, opts)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, strat.Close()) }()
	// Hosts that differ would learn nonsense, or hang.
	if err := strat.Agree(ctx, "the job's settings and data", fmt.Sprintf("%s: %d to train on, %d held out; batches of %d, %d steps, seed %d",
		data.Name, data.Train.Len(), data.Test.Len(), cfg.Batch, cfg.Steps, cfg.Seed)); err != nil {
		return result, err
	}
	settings := fmt.Sprintf("%s: %d to train on, batches of %d, seed %d", data.Name, data.Train.Len(), cfg.Batch, cfg.Seed)

	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(cfg.Seed))
	r := runner{
		strat: strat, store: store, cfg: cfg, data: data, hooks: hooks, result: &result,
		hidden: roundUp(data.Hidden, cfg.Logical),
	}
	// What the hosts do together goes on until all of them know of an interrupt.
	together := ctx
	if strat.NumProcesses() > 1 {
		together = context.WithoutCancel(ctx)
	}
	if r.checkpoints, err = openCheckpoints(ctx, cfg, strat, store, settings); err != nil {
		return result, err
	}
	err = r.train(together, ctx)
	if err = errors.Join(err, r.checkpoints.close()); err != nil {
		return result, err
	}
	accuracy, err := r.test(together)
	if err != nil {
		return result, err
	}
	result.Accuracy = &accuracy
	return result, nil
}

// runner is one run.
type runner struct {
	strat  *strategy.TPUStrategy
	store  *model.Store
	cfg    Config
	data   Data
	hooks  Hooks
	hidden int
	result *Result

	checkpoints *checkpoints
}

// train takes the steps that are left, until notice ends.
func (r *runner) train(ctx, notice context.Context) (err error) {
	adam := optimizer.Adam().LearningRate(r.data.LearningRate).Done()
	step, err := train.New(r.strat, r.store, adam, Loss(r.hidden), train.Options{})
	if err != nil {
		return err
	}
	next, stop := iter.Pull(r.data.Train.Shuffled(r.cfg.Seed, r.cfg.Batch))
	defer stop()

	first, err := r.compile(ctx, step, next)
	if err != nil {
		return err
	}
	done, err := r.checkpoints.resume(ctx)
	if err != nil {
		return err
	}
	r.result.Steps, r.result.Resumed = done, done
	agreement := interrupt.NewAgreement(r.strat)
	defer func() { err = errors.Join(err, agreement.Close()) }()
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // a step that is begun is ended, and saved: notice ends the loop
	start := time.Now()
	batch := first
	for i := 1; i <= r.cfg.Steps; i++ {
		if i > 1 {
			batch, _ = next()
		}
		if i <= done { // these batches were used
			continue
		}
		value, err := step.Run(ctx, batch.Images, batch.Labels)
		if err != nil {
			return err
		}
		// Reading waits for the step: between readings the host prepares batches while the devices
		// work.
		if i == done+1 || i%r.cfg.LossEvery == 0 || i == r.cfg.Steps {
			loss, err := value.Float64(ctx)
			if err != nil {
				return err
			}
			if math.IsNaN(loss) || math.IsInf(loss, 0) {
				return &errkind.Fault{Op: "job: train", Reason: fmt.Sprintf("the loss is %v at step %d: training diverged", loss, i),
					Hint: "try another -seed or a larger -batch", Class: errkind.RuntimeError}
			}
			r.result.Loss = &loss
		}
		r.result.Steps = i
		elapsed := time.Since(start).Seconds()
		r.result.TrainSeconds = elapsed
		r.result.ExamplesPerSecond = float64((i-done)*r.cfg.Batch) / elapsed
		if r.hooks.Progress != nil {
			r.hooks.Progress(Progress{Step: i, Steps: r.cfg.Steps, Loss: *r.result.Loss, ExamplesPerSecond: r.result.ExamplesPerSecond})
		}
		stop, err := agreement.After(notice, int64(i))
		if err != nil {
			return err
		}
		if stop || i%r.cfg.SaveEvery == 0 || i == r.cfg.Steps {
			if err := r.checkpoints.save(ctx, i); err != nil {
				return err
			}
		}
		if stop {
			return r.stopped(agreement.Stopped(int64(i)))
		}
	}
	return nil
}

// stopped is the error of a run that was interrupted. Without checkpoints to go on from it asks for
// no restart.
func (r *runner) stopped(why error) error {
	var e *interrupt.Error
	if r.checkpoints != nil || !errors.As(why, &e) {
		return why
	}
	return &errkind.Fault{Op: "job: train", Reason: fmt.Sprintf("interrupted after %d steps", e.Step), Match: context.Canceled, Err: e.Notice,
		Hint: "give a place for checkpoints by -out, to go on from there"}
}

// compile compiles the step for its first batch, and shows what will run where.
func (r *runner) compile(ctx context.Context, step *train.Step, next func() (Batch, bool)) (Batch, error) {
	start := time.Now()
	batch, ok := next()
	if !ok {
		return batch, invalid("train", "give at least one batch", "no data to train on")
	}
	if _, err := step.Compiled(ctx, batch.Images, batch.Labels); err != nil {
		return batch, err
	}
	r.result.CompileSeconds = time.Since(start).Seconds()
	if r.hooks.Show == nil {
		return batch, nil
	}
	return batch, show(r.hooks.Show, r.strat, r.strat.Variables(r.store).All(), r.data, r.cfg)
}

// test returns the share of the held-out images that are classified rightly.
func (r *runner) test(ctx context.Context) (float64, error) {
	f := r.strat.Function(Correct(r.hidden), strategy.FunctionOptions{Name: "correct", Store: r.store, SplitBatch: true})
	right := 0.0
	for batch := range r.data.Test.Once(r.cfg.Batch) {
		results, err := f.Run(ctx, batch.Images, batch.Labels, batch.Mask)
		if err != nil {
			return 0, err
		}
		// Each replica holds the sum over all.
		value, err := results[0].Local(ctx, r.strat.LocalReplicas()[0])
		if err = errors.Join(err, results[0].Close()); err != nil {
			return 0, err
		}
		right += float64(tensors.ToScalar[float32](value))
	}
	return right / float64(r.data.Test.Len()), nil
}

// options are the strategy's. CPU devices have no neighbours, so replicas take them in order; on a
// TPU the strategy finds blocks of neighbours.
func options(sys *system.System, cfg Config) (strategy.Options, error) {
	opts := strategy.Options{Replicas: cfg.Replicas, LogicalDevices: cfg.Logical, Variables: Variables(cfg.Logical)}
	if sys.Platform() != "cpu" {
		return opts, nil
	}
	assignment, err := inOrder(sys.Topology(), cfg.Replicas, cfg.Logical)
	if err != nil {
		return opts, &errkind.Fault{Op: "job: assign devices", Err: err}
	}
	opts.Assignment = assignment
	return opts, nil
}
