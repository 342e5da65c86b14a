package strategy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"golang.org/x/sync/semaphore"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// StepFunc builds the graph of a step for one replica and returns the step's results, if any. The
// strategy calls it once for each signature, not for each run. It must not run its own function,
// nor another function with the same store: such a call blocks until its context is canceled.
//
// A tensor that the step closes over is a constant of its program. A constant of 1 MiB or more is
// copied to each device once, shared by the strategy's functions, and freed with the last function
// that uses it; docs/limits.md lists the exceptions.
type StepFunc func(rc *ReplicaContext, in []*graph.Node) []*graph.Node

// FunctionOptions configure a step function. They replace TensorFlow's tf.distribute.RunOptions.
// The zero value is a function without variables, whose host arguments are mirrored.
type FunctionOptions struct {
	// Name is used in errors and profiles. The default is "step".
	Name string
	// Store has the variables that the function uses, including the state of the random number
	// generator. They are the same on all replicas: a replica-varying write is an [*Error] of kind
	// ValueError. Only a variable that is not trainable and has a float dtype, such as a running
	// average of batch normalization, is averaged over the replicas instead.
	Store *model.Store
	// MirroredRandomNumbers makes all replicas draw the same random numbers from the store's
	// generator. Without it each replica draws its own numbers, also if Training is false.
	MirroredRandomNumbers bool
	// Training is the result of Scope.IsTraining, which dropout and batch normalization use.
	Training bool
	// Arguments and Results are annotations by position: the splits of arguments and results over
	// the logical devices. Without an annotation, a host argument is replicated, and a value on the
	// devices keeps its layout. A value with another layout is copied before each run, unless the
	// input splits it (feed.DistributeOptions.Arguments, which fit.Dataset sets). An annotation
	// that does not fit is an [*ArgumentError] that wraps a [*logical.Error].
	Arguments, Results []logical.Annotation
	// SplitBatch splits host arguments over the replicas along dimension 0; otherwise each replica
	// receives the complete argument. With SplitBatch, host arguments and per-replica values must
	// have the same number of rows. Scalars and mirrored values are not batches.
	SplitBatch bool
	// UnequalRows accepts split arguments with different numbers of rows, such as the nodes and
	// edges of a graph. By default they are an [*ArgumentError], for values of package feed even
	// without SplitBatch.
	UnequalRows bool
	// LocalBatch is SplitBatch for processes that pass only the rows of their own replicas.
	LocalBatch bool
	// Padding selects how the function handles values whose replicas have different shapes, and
	// with SplitBatch host batches that do not divide evenly. The default rejects them.
	Padding Padding

	// mirroredResults makes all results equal on all replicas, as the loss of a training step.
	mirroredResults bool
	// own is set for an internal program, which is not reported to the user.
	own bool
}

// Function is a step function of a strategy, like a TensorFlow tf.function that Strategy.run runs.
// It is compiled once for each signature, which consists of the dtypes, shapes and layouts of its
// arguments. It is safe for concurrent use.
type Function struct {
	functionAccess
	strategy *TPUStrategy
	step     StepFunc
	opts     FunctionOptions

	// usesAllVariables is set for a training step, which uses all variables of its store.
	usesAllVariables bool
	// maxIterations is the maximum number of iterations of the step in one launch, which continues
	// while the step's first result is true. It is 0 for a function that runs the step once per
	// launch.
	maxIterations int
	// guard, if not nil, is called after each launch. It is set before the first launch.
	guard guard
	// metrics are accumulated in metricState, if there are any. Close closes metricState if
	// ownsState is set.
	metrics     savedstep.Metrics
	metricState *Variable
	ownsState   bool
	// microbatches is the number of microbatches of a training step, or 0 for other functions.
	microbatches int
	// paddedMicrobatchRows returns the padded number of rows of each microbatch, or 0 without
	// padding. It is nil for a function without microbatches, and is set before the first run.
	paddedMicrobatchRows func(arguments []Value) int
	// loaded is the saved step of a function from a step file, otherwise nil. mismatchError returns
	// the error for arguments that the saved step was not compiled for.
	loaded        *savedstep.Step
	mismatchError func(values []Value) error

	// paths are the names of the arguments in errors; nil selects "argument 0", "argument 1" and so
	// on.
	paths []string

	batches batchBindings

	closed    atomic.Bool         // written under strategy.mu
	traced    atomic.Bool         // set by the first trace
	compiling *semaphore.Weighted // held by the goroutine that traces and compiles

	mu       sync.Mutex
	programs map[string]*program // guarded by mu
}

// Function creates a function of the strategy, like TensorFlow's tf.function. The step is traced
// when the function first runs.
func (s *TPUStrategy) Function(step StepFunc, opts FunctionOptions) *Function {
	if opts.Name == "" {
		opts.Name = "step"
	}
	s.rules.addUntraced(s.opts.Variables, opts.Store)
	f := &Function{strategy: s, step: step, opts: opts, compiling: semaphore.NewWeighted(1),
		programs: map[string]*program{}}
	f.functionAccess = engine.NewAccess(internalFunction{f})
	return f
}

// Close frees the compiled programs, and the batch and the results that a training step keeps for
// its next run. It waits for a run in progress; launched steps complete. Later calls return an
// error that matches [ErrClosed]. The strategy's Close also closes its functions.
func (f *Function) Close() error {
	if f == nil || f.strategy == nil || f.strategy.runtime == nil {
		return nil
	}
	s := f.strategy
	s.mu.Lock()
	was := f.closed.Swap(true)
	var programs []*program
	s.programs = slices.DeleteFunc(s.programs, func(p *program) bool {
		if p.function == f {
			programs = append(programs, p)
		}
		return p.function == f
	})
	s.mu.Unlock()
	if was {
		return nil
	}
	s.rules.removeUntraced(f) // it creates no variables from now on
	errs := []error{f.batches.close()}
	if f.ownsState {
		errs = append(errs, f.metricState.Close())
	}
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	for _, p := range programs {
		errs = append(errs, p.close())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.programs)
	return errors.Join(errs...)
}

func (f *Function) checkOpen() error {
	if err := f.strategy.checkOpen(); err != nil {
		return err
	}
	if f.closed.Load() {
		return newClosedError("close it after its last run", "function %s", f.opts.Name)
	}
	return nil
}

func (f *Function) Name() string { return f.opts.Name }

func (f *Function) Strategy() *TPUStrategy { return f.strategy }

// Run runs the function on every replica and returns one value for each result, like TensorFlow's
// Strategy.run. An argument is one tensor. It is a *[PerReplica] or *[Mirrored] of the strategy,
// which the caller keeps, or a host value (see [TPUStrategy.Mirror]). Package strategy/nest accepts
// nests of tensors. The step captures its variables; they are not arguments. The caller must close
// the results.
//
// Run returns when the work is enqueued; Ready and Local of a result wait for it. Run waits for a
// compilation of a new signature, for copies of host arguments, and for earlier launches. The
// context bounds these waits; enqueued work cannot be stopped. A compilation continues after its
// context is canceled, and a later run with the same signature uses it.
//
// Run returns an [*ArgumentError], a [*TraceError], a [*pjrt.Error], or an error that matches
// [ErrClosed].
func (f *Function) Run(ctx context.Context, args ...any) ([]*PerReplica, error) {
	_, results, err := f.run(ctx, args)
	return results, err
}

// run implements Run, and also returns the program that ran.
func (f *Function) run(ctx context.Context, args []any) (*program, []*PerReplica, error) {
	if f.opts.mirroredResults {
		return nil, nil, fault.New(errkind.ValueError, "run "+f.opts.Name,
			"load it with stepfile.LoadTrain, or Bind it", "it is a training step, whose loss is one for all replicas")
	}
	p, results, err := f.runOnce(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	values := make([]*PerReplica, len(results))
	for i, value := range results {
		values[i] = value.(*PerReplica)
	}
	return p, values, nil
}

// runOnce copies the arguments to the devices, runs the program, and releases these copies.
func (f *Function) runOnce(ctx context.Context, args []any) (*program, []Value, error) {
	values, made, err := f.prepareArguments(ctx, args, purposeRun)
	if err != nil {
		return nil, nil, err
	}
	defer made.close()
	p, err := f.program(ctx, values, purposeRun)
	if err != nil {
		return nil, nil, err
	}
	results, err := p.run(ctx, values)
	return p, results, err
}

// program returns the compiled program for values with these shapes, dtypes and layouts. It
// compiles the program at the first use. Only one goroutine compiles at a time.
func (f *Function) program(ctx context.Context, values []Value, goal purpose) (*program, error) {
	key := signature(values)
	if p := f.findProgram(key); p != nil {
		return p, nil
	}
	if f.mismatchError != nil {
		return nil, f.mismatchError(values)
	}
	if err := f.compiling.Acquire(ctx, 1); err != nil {
		return nil, fault.Wrap("waiting for a compilation of "+f.opts.Name, context.Cause(ctx), "")
	}
	defer f.compiling.Release(1)
	if p := f.findProgram(key); p != nil {
		return p, nil
	}
	p, err := f.compile(ctx, values, goal)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.programs[key] = p
	f.mu.Unlock()
	return p, nil
}

func (f *Function) findProgram(key string) *program {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.programs[key]
}

// Lowered traces and lowers the function without compiling it. It accepts the same arguments as
// [Function.Compiled]. Each call traces the step again.
func (f *Function) Lowered(ctx context.Context, args ...any) (*spmd.Module, error) {
	values, made, err := f.prepareArguments(ctx, args, purposeCompile)
	if err != nil {
		return nil, err
	}
	defer made.close()
	m, t, err := f.lower(ctx, values, nil)
	if err != nil {
		return nil, err
	}
	releaseConstants(f.strategy, t.constants)
	return m, nil
}

// Compiled returns the compiled step for arguments like args, without running it. A later run with
// such arguments uses the same program. A shapes.Shape may replace a host tensor: the shape of the
// complete batch, or of this process's rows with [FunctionOptions].LocalBatch. For a loop,
// [TPUStrategy.StackBatches] stacks shapes. Compiled does not initialize variables.
func (f *Function) Compiled(ctx context.Context, args ...any) (*CompiledStep, error) {
	values, made, err := f.prepareArguments(ctx, args, purposeCompile)
	if err != nil {
		return nil, err
	}
	defer made.close()
	p, err := f.program(ctx, values, purposeCompile)
	if err != nil {
		return nil, err
	}
	return p.newCompiledStep(), nil
}

// buffersOf returns the device buffers of each value, in the order of the devices.
func buffersOf(values []Value) ([][]*pjrt.Buffer, error) {
	all := make([][]*pjrt.Buffer, len(values))
	for i, v := range values {
		var err error
		if all[i], err = v.base().openBuffers(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (f *Function) argumentAnnotation(i int) logical.Annotation {
	return annotationAt(f.opts.Arguments, i)
}

func (f *Function) resultAnnotation(i int) logical.Annotation { return annotationAt(f.opts.Results, i) }

func annotationAt(annotations []logical.Annotation, i int) logical.Annotation {
	if i < len(annotations) {
		return annotations[i]
	}
	return logical.Annotation{}
}
