package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Options configure a strategy. The zero value creates one replica for each device of the system.
type Options struct {
	// Assignment maps each logical device of each replica to a device. If it is empty, New creates
	// it from Replicas and LogicalDevices.
	Assignment tpu.DeviceAssignment
	// Replicas is the number of replicas, by default as many as fit. LogicalDevices is the number
	// of logical devices of each replica, by default 1. Both must match Assignment if it is set.
	Replicas, LogicalDevices int
	// BySlice places the same number of complete replicas on each of several slices (see
	// [tpu.AssignmentOptions]); Assignment must match it. By default New does so if TensorFlow's
	// order would mix the slices and the replicas fit.
	BySlice bool
	// LogicalAxes name the axes of a replica's logical devices, in row-major order, for splits by
	// name (logical.SplitOver, logical.SplitOverAxes). The product of their sizes is the number of
	// logical devices. By default there is one axis, logical.LogicalAxis.
	LogicalAxes []sharding.Axis
	// Variables are rules that split variables over the logical devices, and that select the
	// training state to shard over the replicas (logical.MatchState). A variable without a matching
	// rule, or that a rule assigns to one logical device, is replicated on all devices. A rule may
	// name axes (logical.SplitOverAxes). A rule with only logical.ReplicaAxis in a dimension shards
	// variables of stores over that dimension, as logical.ShardParameters does.
	//
	// A rule with an unknown axis is an [*OptionError]. So is a rule that matches no variable by
	// name and rank, unless it is Optional. The error is returned when no function that could
	// create such a variable is still untraced. A training step uses all variables of its store, so
	// it only waits for functions with other stores.
	Variables logical.Rules
	Semantics Semantics
	// Precision applies to matrix multiplications. The default is bfloat16 passes on a TPU.
	Precision lowering.Precision
	// Logger, if not nil, receives warnings, such as input that every process reads completely.
	Logger *slog.Logger
	// Compiling is called after 10 seconds of a compilation and then at increasing intervals, by a
	// separate goroutine. The compilation waits for it to return. If it is nil, Logger receives a
	// message.
	Compiling func(Compilation)
	// CompilerOptions are XLA debug options by name, which JAX calls compiler_options. A value is a
	// string, bool, int, int64 or float64. The plugin defines the names, such as
	// xla_tpu_enable_latency_hiding_scheduler of libtpu; the first compilation returns an error for
	// an unknown name or value. All processes must set the same options, which are part of the keys
	// of a compilation cache. Some options make the compiler use unbounded memory or crash: for
	// untrusted options, set Compiler to a pjrt/worker. As in JAX, the CPU plugin sums float32
	// values faster and less accurately with "xla_cpu_experimental_ynn_fusion_type":
	// "LIBRARY_FUSION_TYPE_REDUCE".
	CompilerOptions map[string]any
	// Phases is called at the start of each phase of building a step's program, and when the
	// program is ready. Calls for different programs may be concurrent. Package fit/progress
	// displays the phases.
	Phases func(phase.Phase)
	// Compiler compiles the steps instead of the system's runtime. It may be a cache (package
	// pjrt/cache), or a separate process (package pjrt/worker), whose crash does not end this
	// process. Ahead of time it must implement [pjrt.TopologyCompiler] to be used.
	Compiler pjrt.Compiler
}

// TPUStrategy runs steps on the replicas of a device assignment, like TensorFlow's
// tf.distribute.TPUStrategy, or with several processes MultiWorkerMirroredStrategy. It has the
// methods of tf.distribute.Strategy for values and variables; package strategy/eager has the other
// methods. It is safe for concurrent use.
type TPUStrategy struct {
	strategyAccess
	runtime        *engine.Runtime
	slice          *system.Slice // the described slice of an ahead-of-time strategy, otherwise nil
	opts           Options
	assignment     tpu.DeviceAssignment
	target         lowering.Target
	replicas       int
	logicalDevices int           // per replica
	axes           sharding.Mesh // axes of the logical devices
	fullMesh       sharding.Mesh // axes of the replicas and the logical devices, for variable rules
	shardsState    bool          // whether state is sharded over the replicas

	// checkTraining, if not nil, checks the graph of each traced step that trains. It is set before
	// the first trace.
	checkTraining func(g *graph.Graph) error

	// generation counts the changes of variable buffers outside of steps. engine.Runtime.Launch
	// guards it.
	generation int

	closed atomic.Bool // written under mu

	// sequence is the number of the last eager call in which all processes took part.
	sequence atomic.Uint64

	mu       sync.Mutex
	programs []*program
	// values has the buffers of each value that is neither closed nor garbage-collected.
	values      map[weak.Pointer[deviceValue]]engine.Buffers
	variables   map[*model.Store]*Variables
	builtins    map[string]*Function
	distributed []*Variable // variables of NewVariable
	constants   sharedConstants
	rules       ruleTracker
}

// New returns a strategy over the system's devices. It compiles nothing and allocates no device
// memory. Several strategies may share a system; close them before the system. An invalid option is
// an [*OptionError]. The error for a closed system matches pjrt.ErrClosed.
func New(sys *system.System, opts Options) (*TPUStrategy, error) {
	if sys == nil {
		return nil, fault.New(errkind.ValueError, "there is no system", "see the error of system.Open", "it is nil")
	}
	if err := sys.Check(); err != nil {
		return nil, fault.Wrap("new", err, "")
	}
	s, err := newStrategy(sys.Topology(), opts)
	if err != nil {
		return nil, err
	}
	if sys.Platform() == "cpu" {
		s.target = lowering.TargetCPU
	}
	if s.runtime, err = engine.NewRuntime(sys, s.opts.runtimeOptions(s.assignment)); err != nil {
		return nil, &OptionError{Option: "Assignment", Reason: "does not fit the system", Err: err}
	}
	return s, nil
}

func (o *Options) runtimeOptions(assignment tpu.DeviceAssignment) engine.Options {
	return engine.Options{ErrorPrefix: "strategy", Groups: assignment.DeviceIDs(), Compiler: o.Compiler,
		Overrides: o.CompilerOptions,
		Progress:  o.progressCallback(), Closed: errStrategyClosed, OutOfStep: newOutOfStepError,
		Differ: func(what string, texts []string, differing []int) error {
			return &MismatchError{what, texts, differing}
		}}
}

// newStrategy validates the options and returns a strategy without a runtime.
func newStrategy(topology tpu.Topology, opts Options) (*TPUStrategy, error) {
	assignment := opts.Assignment
	if assignment.NumReplicas() == 0 {
		var err error
		of := opts.LogicalDevices
		if of == 0 { // the product of the axes
			mesh, err := logical.NewMesh(0, opts.LogicalAxes...)
			if err != nil {
				return nil, newAxesError(err)
			}
			of = mesh.Size()
		}
		if assignment, err = newAssignment(topology, opts.Replicas, of, opts.BySlice); err != nil {
			return nil, err
		}
	} else if opts.Replicas != 0 && opts.Replicas != assignment.NumReplicas() {
		return nil, &OptionError{Option: "Replicas", Reason: fmt.Sprintf(
			"%d, but the Assignment has %d; give one of them", opts.Replicas, assignment.NumReplicas())}
	} else if opts.LogicalDevices != 0 && opts.LogicalDevices != assignment.NumCoresPerReplica() {
		return nil, &OptionError{Option: "LogicalDevices", Reason: fmt.Sprintf(
			"%d, but the Assignment has %d; give one of them", opts.LogicalDevices, assignment.NumCoresPerReplica())}
	}
	// TensorFlow accepts an assignment that names a core twice, but no program can run on it.
	if err := assignment.Validate(); err != nil {
		return nil, &OptionError{Option: "Assignment", Reason: "names a core twice", Err: err}
	}
	if err := checkSlices(topology, assignment, opts); err != nil {
		return nil, err
	}
	axes, err := logical.NewMesh(assignment.NumCoresPerReplica(), opts.LogicalAxes...)
	if err != nil {
		return nil, newAxesError(err)
	}
	opts.LogicalAxes = axes.Axes()
	whole, err := sharding.NewMesh(append([]sharding.Axis{{Name: logical.ReplicaAxis,
		Size: assignment.NumReplicas()}}, axes.Axes()...)...)
	if err != nil {
		return nil, newAxesError(err)
	}
	if err := opts.Variables.Validate(whole); err != nil {
		return nil, &OptionError{Option: "Variables", Reason: "not right", Err: err}
	}
	for i, rule := range opts.Variables {
		if err := checkRule(rule); err != nil {
			return nil, &OptionError{Option: "Variables", Reason: fmt.Sprintf("rule %d (%s)", i, rule), Err: err}
		}
	}
	if err := (lowering.Options{Precision: opts.Precision}).Check(); err != nil {
		return nil, &OptionError{Option: "Precision", Reason: "not right", Err: err}
	}
	if opts.Semantics < OwnSemantics || opts.Semantics > TensorFlowMirrored {
		return nil, &OptionError{Option: "Semantics",
			Reason: fmt.Sprintf("%s is unknown; use OwnSemantics, TensorFlowTPU or TensorFlowMirrored", opts.Semantics)}
	}
	if err := pjrt.CheckOverrides(opts.CompilerOptions); err != nil {
		return nil, &OptionError{Option: "CompilerOptions", Reason: "not right", Err: err}
	}
	opts.CompilerOptions = maps.Clone(opts.CompilerOptions)
	s := &TPUStrategy{
		opts: opts, assignment: assignment,
		replicas: assignment.NumReplicas(), logicalDevices: assignment.NumCoresPerReplica(), axes: axes,
		fullMesh:    whole,
		shardsState: assignment.NumReplicas() > 1 && opts.Variables.UsesAxis(logical.ReplicaAxis),
		values:      map[weak.Pointer[deviceValue]]engine.Buffers{}, variables: map[*model.Store]*Variables{},
		builtins: map[string]*Function{},
	}
	s.strategyAccess = engine.NewAccess(internalStrategy{s})
	return s, nil
}

func newAxesError(err error) error {
	return &OptionError{Option: "LogicalAxes", Reason: "not right", Err: err}
}

// NumReplicasInSync returns the number of replicas (num_replicas_in_sync).
func (s *TPUStrategy) NumReplicasInSync() int { return s.replicas }

// NumLogicalDevices returns P, the number of logical devices of a replica.
func (s *TPUStrategy) NumLogicalDevices() int { return s.logicalDevices }

// LogicalMesh returns the named axes of a replica's logical devices.
func (s *TPUStrategy) LogicalMesh() sharding.Mesh { return s.axes }

func (s *TPUStrategy) DeviceAssignment() tpu.DeviceAssignment { return s.assignment }

func (s *TPUStrategy) Semantics() Semantics { return s.opts.Semantics }

// System returns the system that the strategy runs on, or nil ahead of time.
func (s *TPUStrategy) System() *system.System {
	return s.runtime.System
}

// registerValue adds a value to the values that Close releases. The strategy only has a weak
// reference, so an unused value can be garbage-collected. Its buffers are then closed.
func (s *TPUStrategy) registerValue(v *deviceValue) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() || s.values == nil {
		return errStrategyClosed
	}
	p := weak.Make(v)
	s.values[p] = v.buffers
	runtime.AddCleanup(v, func(p weak.Pointer[deviceValue]) { _ = s.unregisterValue(p).Close() }, p)
	return nil
}

// unregisterValue removes a value from the values that Close releases, and returns its buffers. It
// returns nil if the value is not registered.
func (s *TPUStrategy) unregisterValue(p weak.Pointer[deviceValue]) engine.Buffers {
	s.mu.Lock()
	defer s.mu.Unlock()
	buffers := s.values[p]
	delete(s.values, p)
	return buffers
}

func (s *TPUStrategy) checkOpen() error {
	switch {
	case s == nil || s.runtime == nil:
		return errZeroStrategy
	case s.closed.Load():
		return errStrategyClosed
	}
	return nil
}

// checkRunnable returns an error if the strategy has no devices. The words doing describe the
// operation in the error.
func (s *TPUStrategy) checkRunnable(doing ...string) error {
	if s == nil || s.slice == nil {
		return nil
	}
	return &Error{Match: ErrAheadOfTime, Op: "strategy: " + strings.Join(doing, " "),
		Hint:   "open a system and use New to run",
		Reason: fmt.Sprintf("the strategy compiles ahead of time for %s, which is not here", s.slice.Info().Name)}
}

// Close releases the strategy's programs, variables and values. The system stays open. Running
// steps complete. Close waits for calls that are launching a step; [TPUStrategy.Shutdown] bounds
// that wait. Close abandons the compilations in progress: a call that waits for one returns
// [ErrClosed].
func (s *TPUStrategy) Close() error {
	if s == nil || s.runtime == nil { // a zero value
		return nil
	}
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	s.mu.Lock()
	values, variables, programs, own := s.values, s.variables, s.programs, s.distributed
	s.closed.Store(true)
	s.values, s.variables, s.programs, s.distributed = nil, nil, nil, nil
	s.mu.Unlock()
	errs := s.runtime.Close()
	for p, buffers := range values {
		if v := p.Value(); v != nil {
			errs = append(errs, v.release())
		}
		errs = append(errs, buffers.Close())
	}
	for _, v := range variables {
		errs = append(errs, v.release())
	}
	for _, v := range own {
		errs = append(errs, v.release())
	}
	for _, p := range programs {
		errs = append(errs, p.close())
	}
	return errors.Join(append(errs, s.constants.close()...)...)
}

// Shutdown closes the strategy like [TPUStrategy.Close], but returns an error if ctx is canceled
// first. The close then continues in the background. Close may wait long, because the launch of a
// step blocks while eight launches of its program are in progress.
func (s *TPUStrategy) Shutdown(ctx context.Context) error {
	if err := RefuseTracing(ctx, "shut down", fault.InsteadOfMeeting); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fault.Wrap("shutdown: the strategy did not close", context.Cause(ctx), "")
	}
}
