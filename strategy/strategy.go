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
	// Assignment maps each logical device of each replica to a device. If it has no replicas, New
	// creates an assignment from Replicas and LogicalDevices.
	Assignment tpu.DeviceAssignment
	// Replicas is the number of replicas, and LogicalDevices the number of logical devices of each
	// replica. If Assignment is set, they must be zero or match it. LogicalDevices 0 means 1, and
	// Replicas 0 means as many replicas as fit.
	Replicas, LogicalDevices int
	// BySlice assigns the same number of complete replicas to each of several slices, so that all
	// logical devices of a replica are on one slice; see [tpu.AssignmentOptions]. An explicit
	// Assignment must also have this property. Without BySlice the replicas are still placed by
	// slice if they fit and TensorFlow's order would mix the slices
	// ([tpu.DeviceAssignment.HasMixedSliceOrder]).
	BySlice bool
	// LogicalAxes name the axes of a replica's logical devices, the slowest axis first: logical
	// device i has the row-major coordinates of index i. The product of their sizes is the number
	// of logical devices, and the default of LogicalDevices. Splits by name (logical.SplitOver,
	// logical.SplitOverAxes) refer to these axes; splits by number remain valid. Without LogicalAxes a
	// replica has one axis, logical.LogicalAxis.
	LogicalAxes []sharding.Axis
	// Variables are rules that split variables over the logical devices and that select the
	// training state that is sharded over the replicas (logical.MatchState). A variable without a
	// matching rule is replicated on all devices, as in TensorFlow. A variable that a rule assigns
	// to one logical device is also replicated on all of them.
	//
	// A rule that matches no variable by name and rank is an [*OptionError], unless it is Optional.
	// The strategy searches the step's store, other stores and the variables of
	// [TPUStrategy.NewVariable]. The last function that could create the variable returns the
	// error: no rule is rejected while another function with a store is not yet traced. A training
	// step has the complete model of its store, and only waits for functions with other stores.
	//
	// A rule may name axes (logical.SplitOverAxes). An axis that the replica does not have is an
	// [*OptionError]. A rule with logical.ReplicaAxis alone in a dimension shards the variables of
	// stores as logical.ShardParameters does, over that dimension.
	Variables logical.Rules
	// Semantics selects the TensorFlow strategy to imitate where TensorFlow's strategies differ.
	Semantics Semantics
	// Precision is the precision of matrix multiplications; the default is bfloat16 passes on a TPU.
	Precision lowering.Precision
	// Logger receives warnings, such as input that every process reads completely. Nil discards
	// them.
	Logger *slog.Logger
	// Compiling is called during a long compilation: after 10 seconds, and then at increasing
	// intervals. It runs in a separate goroutine, and the compilation waits for it to return. If it
	// is nil, the Logger receives a message instead.
	Compiling func(Compilation)
	// CompilerOptions are XLA debug options by name, for each program that the strategy compiles. A
	// value is a string, bool, int, int64 or float64. JAX calls them compiler_options. The plugin
	// defines the names: libtpu has xla_tpu_enable_latency_hiding_scheduler, for example. The first
	// compilation returns an error for an unknown name or value. The options are part of the keys
	// of a compilation cache, and all processes must set the same options. Some options make the
	// compiler use unbounded memory or crash its process, and a compilation in this process
	// continues after its context is canceled. If the options are untrusted, set Compiler to a
	// pjrt/worker.
	//
	// The CPU plugin sums float32 values faster and less accurately (a running sum over each
	// column) with "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE", which JAX
	// uses.
	CompilerOptions map[string]any
	// Phases is called at the start of each phase of building a step's program, and when the
	// program is ready. Package fit/progress displays these calls as a progress line. Calls for one
	// program are sequential, from the goroutine that builds it, which waits for them. Calls for
	// several programs may be concurrent. The strategy's own small programs are not reported.
	Phases func(phase.Phase)
	// Compiler compiles the steps instead of the system's runtime. It may be a cache of compiled
	// programs (package pjrt/cache), or a separate process (package pjrt/worker), whose crash does
	// not end this process. Nil selects the system's runtime. Ahead of time the strategy uses a
	// Compiler that implements [pjrt.TopologyCompiler].
	Compiler pjrt.Compiler
}

// TPUStrategy runs steps on the replicas of a device assignment: TensorFlow's
// tf.distribute.TPUStrategy. With several processes it replaces
// tf.distribute.experimental.MultiWorkerMirroredStrategy. It has the methods of TensorFlow's
// tf.distribute.Strategy for values and variables; package strategy/eager has the other methods. It
// is safe for concurrent use.
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

	// checkTraining checks the graph of each traced function that trains; nil disables the check.
	// It is set before the first trace.
	checkTraining func(g *graph.Graph) error

	// generation counts the changes of variable buffers outside of steps, guarded by
	// engine.Runtime.Launch.
	generation int

	closed atomic.Bool // written under mu

	// sequence numbers the eager calls that involve all processes.
	sequence atomic.Uint64

	mu       sync.Mutex
	programs []*program
	// values maps each open value that is not yet collected to its buffers.
	values      map[weak.Pointer[deviceValue]]engine.Buffers
	variables   map[*model.Store]*Variables
	builtins    map[string]*Function
	distributed []*Variable // variables of NewVariable
	constants   sharedConstants
	rules       ruleTracker
}

// New returns a strategy over the system's devices. It compiles nothing and allocates no device
// memory. The caller keeps ownership of the system, and several strategies may share it; close the
// strategies before the system. An [*OptionError] names the option that is wrong. If the system is
// closed, the error matches pjrt.ErrClosed.
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

// runtimeOptions returns the options of the engine for an assignment.
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
		return nil, &OptionError{Option: "Semantics", Reason: fmt.Sprintf("%s is unknown; use OwnSemantics, TensorFlowTPU or TensorFlowMirrored", opts.Semantics)}
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

// NumReplicasInSync returns R, the number of replicas: TensorFlow's num_replicas_in_sync.
func (s *TPUStrategy) NumReplicasInSync() int { return s.replicas }

// NumLogicalDevices returns P, the number of logical devices of a replica.
func (s *TPUStrategy) NumLogicalDevices() int { return s.logicalDevices }

// LogicalMesh returns the named axes of a replica's logical devices, which [Options].LogicalAxes
// sets.
func (s *TPUStrategy) LogicalMesh() sharding.Mesh { return s.axes }

// DeviceAssignment returns the mapping of replicas and logical devices to devices.
func (s *TPUStrategy) DeviceAssignment() tpu.DeviceAssignment { return s.assignment }

// Semantics returns the value of [Options].Semantics.
func (s *TPUStrategy) Semantics() Semantics { return s.opts.Semantics }

// System returns the system that the strategy runs on. It is nil for an ahead-of-time strategy.
func (s *TPUStrategy) System() *system.System {
	return s.runtime.System
}

// registerValue registers a value for Close. It holds the value weakly and the buffers strongly;
// the buffers are released when the value is closed or collected.
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

// unregisterValue unregisters a value and returns its buffers, or nil if the value is not registered.
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

// checkRunnable returns an error if the strategy has no devices. The words name the operation.
func (s *TPUStrategy) checkRunnable(doing ...string) error {
	if s == nil || s.slice == nil {
		return nil
	}
	return &Error{Match: ErrAheadOfTime, Op: "strategy: " + strings.Join(doing, " "),
		Hint:   "open a system and use New to run",
		Reason: fmt.Sprintf("the strategy compiles ahead of time for %s, which is not here", s.slice.Info().Name)}
}

// Close releases the strategy's programs, variables and values. The system stays open. A second
// Close does nothing. Steps that are running continue to their end and keep the memory that they
// use. Close abandons the compilations in progress: a call that waits for one returns [ErrClosed],
// and a program that the compiler still completes is released. A process can therefore exit during
// a compilation that takes minutes.
//
// Close waits for calls that are launching a step; [TPUStrategy.Shutdown] bounds that wait.
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

// Shutdown closes the strategy like [TPUStrategy.Close], and returns an error if ctx is canceled
// first. Close alone may wait long: the launch of a step blocks while eight launches of its program
// are in progress, and a device may hang. After the context is canceled, the close continues in the
// background.
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
