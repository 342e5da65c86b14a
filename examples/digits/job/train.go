package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
	"github.com/tpustrategy/tpustrategy/strategy/interrupt"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Hooks are functions and writers that follow a run. Each may be nil.
type Hooks struct {
	// Show receives tables of the mesh, the devices and the variables, before the first step.
	Show io.Writer
	// Compiling is called for a compilation that takes long; see [strategy.Options].
	Compiling func(strategy.Compilation)
	// Fit are hooks of the training loop, such as a bar.
	Fit []fit.Hook
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
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(cfg.Seed))
	r := runner{
		strat: strat, store: store, cfg: cfg, data: data, hooks: hooks, result: &result,
		hidden: roundUp(data.Hidden, cfg.Logical),
	}
	err = r.train(ctx)
	return result, err
}

// Again returns the error of a run that ctx ended: where there is a place for checkpoints, one whose
// exit code asks for a restart, also if the run had not come to its first step. It returns other
// errors, and nil, as they are.
func Again(ctx context.Context, cfg Config, result Result, err error) error {
	var known *interrupt.Error
	if err == nil || cfg.Out == "" || ctx.Err() == nil || errors.As(err, &known) || !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return &interrupt.Error{Step: int64(result.Steps), Notice: interrupt.Of(ctx)}
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
}

// train takes the steps that are left, and tests. All that the hosts do together they do within
// fit.Run, whose watchdog, if there is one, bounds their waits for each other.
func (r *runner) train(ctx context.Context) (err error) {
	adam := optimizer.Adam().LearningRate(r.data.LearningRate).Done()
	step, err := train.New(r.strat, r.store, adam, Loss(r.hidden), train.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, step.Close()) }()
	opts := fit.Options{Steps: int64(r.cfg.Steps), Every: fit.Every(r.cfg.LossEvery), Settings: map[string]string{
		"data": fmt.Sprintf("%s, %d to train on, %d held out", r.data.Name, r.data.Train.Len(), r.data.Test.Len()), "batch": fmt.Sprint(r.cfg.Batch), "seed": fmt.Sprint(r.cfg.Seed)}}
	hooks := append([]fit.Hook{r.compile(step), fit.Finite()}, r.hooks.Fit...)
	if r.cfg.Out != "" {
		opts.Resume = true
		// Every host saves what its devices hold.
		hooks = append(hooks, fit.Checkpoint(r.cfg.Out, fit.Every(r.cfg.SaveEvery), fit.CheckpointOptions{Keep: 2, Background: true}))
	}
	done, err := fit.Run(ctx, step, fit.Batches(r.batches), opts, append(hooks, r.test(ctx))...)
	r.result.Steps, r.result.Resumed, r.result.TrainSeconds = int(done.Step), int(done.Resumed), done.TrainSeconds
	if done.Taken > 0 {
		r.result.ExamplesPerSecond = float64(done.Rows) / done.TrainSeconds
	}
	if loss, ok := done.Value(fit.Loss); ok && !math.IsNaN(loss) && !math.IsInf(loss, 0) {
		r.result.Loss = &loss
	}
	if other := (*fit.ResumeError)(nil); errors.As(err, &other) {
		return &UsageError{Flag: "out", Reason: fmt.Sprintf("%s has a run of other settings: %v", r.cfg.Out, err), Err: err}
	}
	return err
}

// batches yields the batches of the run, from its first.
func (r *runner) batches(yield func([]any, error) bool) {
	for batch := range r.data.Train.Shuffled(r.cfg.Seed, r.cfg.Batch) {
		if !yield([]any{batch.Images, batch.Labels}, nil) {
			return
		}
	}
}

// compile compiles the step for its first batch, and shows what will run where.
func (r *runner) compile(step *train.Step) fit.Hook {
	return fit.Hook{Name: "compile", Begin: func(ctx context.Context, _ *fit.State) error {
		start := time.Now()
		for batch := range r.batches {
			if _, err := step.Compiled(ctx, batch...); err != nil {
				return err
			}
			break
		}
		r.result.CompileSeconds = time.Since(start).Seconds()
		if r.hooks.Show == nil {
			return nil
		}
		return show(r.hooks.Show, r.strat, r.strat.Variables(r.store).All(), r.data, r.cfg)
	}}
}

// test tests at the end of a run that is through. One host alone can be interrupted meanwhile.
func (r *runner) test(notice context.Context) fit.Hook {
	return fit.Hook{Name: "test", End: func(ctx context.Context, _ *fit.State, err error) error {
		if err != nil {
			return nil
		}
		if r.strat.NumProcesses() == 1 {
			ctx = notice
		}
		accuracy, err := r.accuracy(ctx)
		if err == nil {
			r.result.Accuracy = &accuracy
		}
		return err
	}}
}

// accuracy returns the share of the held-out images that are classified rightly.
func (r *runner) accuracy(ctx context.Context) (share float64, err error) {
	f := r.strat.Function(Correct(r.hidden), strategy.FunctionOptions{Name: "correct", Store: r.store, SplitBatch: true})
	defer func() { err = errors.Join(err, f.Close()) }()
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
