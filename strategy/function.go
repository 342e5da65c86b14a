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
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// StepFunc builds the graph of a step for one replica and returns the step's results, of which
// there may be none. The strategy calls it once for each signature that the function runs with, not
// once for each run. It must not run its own function, nor another function over the same store:
// such a call waits until its context ends, because the store is in use.
//
// A tensor that the step closes over is a constant of its program. A constant of 1 MiB or more becomes
// an argument of the program: the strategy copies it to each device once, shares the copy between its
// functions, and frees it with the last function that uses it. docs/limits.md lists the constants that
// stay in the program's text.
type StepFunc func(rc *ReplicaContext, in []*graph.Node) []*graph.Node

// FunctionOptions describe a step function; they take the place of TensorFlow's
// tf.distribute.RunOptions. The zero value is a function without variables, whose host arguments
// are mirrored.
type FunctionOptions struct {
	// Name is the function's name in errors and profiles; "step" if empty.
	Name string
	// Store holds the variables that the function uses. A variable that the function changes keeps
	// its new value on the devices. All replicas share a store's variables: the value that a
	// replica writes to a variable that is trainable, or whose dtype is no float, must be the same
	// on each replica, or the write is an [*Error] of kind ValueError. Values of other float
	// variables that may differ, such as the running averages of a batch normalisation, are
	// averaged over the replicas. The state of the random numbers is a variable of the store, too,
	// which is the same on all replicas; see MirroredRandomNumbers.
	Store *model.Store
	// MirroredRandomNumbers makes all replicas draw the same random numbers from the store's
	// generator. Without it each replica draws its own, whether Training is set or not; the package
	// comment says from what.
	MirroredRandomNumbers bool
	// Training is the answer of Scope.IsTraining: if it is true, dropout and batch normalisation
	// behave as in training.
	Training bool
	// Arguments say how the arguments are split over the logical devices, by position. Without an
	// annotation a host argument is replicated and a value stays as it is. A value that comes in
	// another layout is laid out anew before each run, which costs a copy: let the input split it
	// (feed.DistributeOptions.Arguments; fit.Dataset does it). An annotation that does not fit
	// is an [*ArgumentError] that wraps a [*logical.Error].
	Arguments []logical.Annotation
	// Results say how the results are split over the logical devices, by position.
	Results []logical.Annotation
	// SplitBatch splits host arguments into the replicas' batches along dimension 0. Without it each
	// replica receives the whole argument. Host arguments and per-replica values must then have the
	// same number of rows, because a replica would otherwise broadcast one of its rows, or compute
	// with the rows of different examples. Scalars and mirrored values are not batches.
	SplitBatch bool
	// UnequalRows allows arguments that are split over replicas to have different numbers of rows, as
	// the nodes and the edges of a graph do. Without it such arguments are an [*ArgumentError], and so
	// are values of package feed with different numbers of rows, with and without SplitBatch.
	UnequalRows bool
	// LocalBatch, with SplitBatch, says that the host arguments of each process are the rows of the
	// process's own replicas, not the global batch. It matters with several processes only.
	LocalBatch bool
	// Padding says what the function does with values whose replicas differ in shape, and with
	// SplitBatch with host batches that do not divide among the replicas. The zero value refuses
	// them.
	Padding Padding

	mirroredResults bool
	// own says that the program is the strategy's own, which nobody is told of.
	own bool
}

// Function is a step function of a strategy: TensorFlow's tf.function under Strategy.run. It is
// compiled once for each signature, that is for the dtypes, shapes and placements of its arguments.
// It is safe for concurrent use.
type Function struct {
	strategy *TPUStrategy
	step     StepFunc
	opts     FunctionOptions

	// wholeModel says that the step has all variables of its store: a training step.
	wholeModel bool
	// repeats is how often a launch runs the step at most, as long as the step's first result says so;
	// 0 for a function whose launch runs it once.
	repeats int
	// guard, if there is one, is asked after each launch. It is set before the first.
	guard guard
	// metrics are what the function accumulates in metricState, if it does. The state is closed with
	// the function that it was made for.
	metrics     saved.Metrics
	metricState *Variable
	ownsState   bool
	// microbatches is the number of microbatches of a training step, 0 for other functions.
	microbatches int
	// microbatch returns the padded number of rows of each microbatch of the arguments, or 0 if no rows
	// are padded. It is nil for a function without microbatches, and is set before the first run.
	microbatch func(arguments []Value) int
	// loaded is what the function was put together from, nil for one that is traced; refuse is the
	// error of arguments that it was not compiled for.
	loaded *saved.Step
	refuse func(values []Value) error

	// paths are the names of the arguments in errors; nil for "argument 0" and following.
	paths []string

	resident residentLoop

	closed    atomic.Bool         // set under strategy.mu
	traced    atomic.Bool         // once
	compiling *semaphore.Weighted // one goroutine traces and compiles

	mu       sync.Mutex
	programs map[string]*program // guarded by mu
}

// Function returns a compiled function of the strategy: TensorFlow's tf.function. Nothing is traced
// until it runs.
func (s *TPUStrategy) Function(step StepFunc, opts FunctionOptions) *Function {
	if opts.Name == "" {
		opts.Name = "step"
	}
	s.rules.awaits(s.opts.Variables, opts.Store)
	return &Function{strategy: s, step: step, opts: opts, compiling: semaphore.NewWeighted(1), programs: map[string]*program{}}
}

// Close frees what the function has on the devices: its compiled programs, and the batch and the
// results that a training step keeps for its next run. Later calls return an error that matches
// [ErrClosed]. Close waits for a run under way; steps that were launched run to their end. A second
// Close does nothing. The strategy's Close closes its functions.
func (f *Function) Close() error {
	if f == nil || f.strategy == nil || f.strategy.machine == nil {
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
	s.rules.came(f) // it makes no variables any more
	errs := []error{f.resident.close()}
	if f.ownsState {
		errs = append(errs, f.metricState.Close())
	}
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	for _, p := range programs {
		errs = append(errs, p.close())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.programs)
	return errors.Join(errs...)
}

// check refuses a function that was closed, or whose strategy was.
func (f *Function) check() error {
	if err := f.strategy.check(); err != nil {
		return err
	}
	if f.closed.Load() {
		return closed("function %s", f.opts.Name)
	}
	return nil
}

// Name returns the function's name in errors and profiles.
func (f *Function) Name() string { return f.opts.Name }

// Strategy returns the strategy that runs the function.
func (f *Function) Strategy() *TPUStrategy { return f.strategy }

// Run runs the function on every replica and returns its results, one value for each result:
// TensorFlow's Strategy.run. An argument is a *[PerReplica] or *[Mirrored] of the strategy, which
// stays the caller's, or a host value (see [TPUStrategy.Mirror]). It is one tensor;
// package strategy/nest takes nests of tensors. Variables are no arguments: the step captures
// them. The results are the caller's to Close.
//
// Run returns when the work is under way; Ready and Local of a result wait for it. Run blocks while
// it traces and compiles a new signature, while it copies host arguments, and until its turn comes.
// The context bounds these waits; work under way cannot be stopped. A compilation that outlives the
// context goes on, and a later run of the signature waits for it instead of beginning another.
//
// Errors: [*ArgumentError], [*TraceError], [*pjrt.Error], [ErrClosed].
func (f *Function) Run(ctx context.Context, args ...any) ([]*PerReplica, error) {
	_, results, err := f.run(ctx, args)
	return results, err
}

// run is Run, and says which program ran.
func (f *Function) run(ctx context.Context, args []any) (*program, []*PerReplica, error) {
	if f.opts.mirroredResults {
		return nil, nil, fault.New(errkind.ValueError, "run "+f.opts.Name, "load it with stepfile.LoadTrain, or Bind it", "it is a training step, whose loss is one for all replicas")
	}
	p, results, err := f.once(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	values := make([]*PerReplica, len(results))
	for i, value := range results {
		values[i] = value.(*PerReplica)
	}
	return p, values, nil
}

// once lays arguments out and runs their program on them, with no thought of a next run.
func (f *Function) once(ctx context.Context, args []any) (*program, []Value, error) {
	values, made, err := f.arguments(ctx, args, toRun)
	if err != nil {
		return nil, nil, err
	}
	defer made.close()
	p, err := f.program(ctx, values, toRun)
	if err != nil {
		return nil, nil, err
	}
	results, err := p.run(ctx, values)
	return p, results, err
}

// program returns the compiled step for the values' signature, compiling it if it is new. One
// goroutine compiles at a time.
func (f *Function) program(ctx context.Context, values []Value, to purpose) (*program, error) {
	key := signature(values)
	if p := f.compiled(key); p != nil {
		return p, nil
	}
	if f.refuse != nil {
		return nil, f.refuse(values)
	}
	if err := f.compiling.Acquire(ctx, 1); err != nil {
		return nil, fault.Of("waiting for a compilation of "+f.opts.Name, context.Cause(ctx), "")
	}
	defer f.compiling.Release(1)
	if p := f.compiled(key); p != nil {
		return p, nil
	}
	p, err := f.compile(ctx, values, to)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.programs[key] = p
	f.mu.Unlock()
	return p, nil
}

// compiled returns the program of a signature, or nil.
func (f *Function) compiled(key string) *program {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.programs[key]
}

// Lowered traces and lowers the function for arguments like these, without compiling it. Arguments
// and variables are as in [Function.Compiled]. Nothing is kept: each call traces anew.
func (f *Function) Lowered(ctx context.Context, args ...any) (*spmd.Module, error) {
	values, made, err := f.arguments(ctx, args, toCompile)
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

// Compiled returns the compiled step for arguments like these, without running it: the module's
// text and placements, and the executable's statistics. A later run with such arguments uses the
// same program.
//
// Instead of a host tensor an argument may be its shape, a shapes.Shape of the whole batch, or with
// [FunctionOptions.LocalBatch] of this process's rows; for a loop, [TPUStrategy.StackBatches]
// stacks shapes. Compiled makes no first values of variables and copies nothing: that happens when
// a step runs, or when a variable is read.
func (f *Function) Compiled(ctx context.Context, args ...any) (*CompiledStep, error) {
	values, made, err := f.arguments(ctx, args, toCompile)
	if err != nil {
		return nil, err
	}
	defer made.close()
	p, err := f.program(ctx, values, toCompile)
	if err != nil {
		return nil, err
	}
	return p.compiled(), nil
}

// buffersOf lists the buffers of values, by device.
func buffersOf(values []Value) ([][]*pjrt.Buffer, error) {
	all := make([][]*pjrt.Buffer, len(values))
	for i, v := range values {
		var err error
		if all[i], err = v.base().live(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (f *Function) argument(i int) logical.Annotation { return at(f.opts.Arguments, i) }

func (f *Function) result(i int) logical.Annotation { return at(f.opts.Results, i) }

func at(annotations []logical.Annotation, i int) logical.Annotation {
	if i < len(annotations) {
		return annotations[i]
	}
	return logical.Annotation{}
}

// guard decides in a training step whether what the step writes is kept. Package strategy/train has
// the one that there is.
type guard = interface {
	// Launched is called after each launch of the function. Its error is the launch's.
	Launched(ctx context.Context, f *Function) error
	// Saved is what a saved step says of the guard.
	Saved() saved.Guard
}

// innerFunction is the inner face of a function.
type innerFunction struct{ *Function }
