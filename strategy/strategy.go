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
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Options configure a strategy. The zero value makes one replica for each device of the system.
type Options struct {
	// Assignment says which device is which logical device of which replica. If it has no replicas,
	// New makes one from Replicas and LogicalDevices.
	Assignment tpu.DeviceAssignment
	// Replicas and LogicalDevices are the numbers of replicas and of logical devices of a replica,
	// where no Assignment is given. LogicalDevices 0 means 1; Replicas 0 means as many replicas as
	// fit.
	Replicas, LogicalDevices int
	// BySlice gives each of several slices the same number of whole replicas, slice by slice: the
	// logical devices of a replica are then on one slice. See [tpu.AssignmentOptions]. An Assignment
	// that is given has to be such. Without it, replicas are so all the same where they fit and
	// TensorFlow's order would mix the slices ([tpu.DeviceAssignment.MixesSlices]).
	BySlice bool
	// LogicalAxes name the axes of a replica's logical devices, the slowest first: logical device i
	// is at the row-major coordinates of i. Their sizes multiply to the number of logical devices;
	// LogicalDevices 0 then stands for the product. Splits by names (logical.SplitOver,
	// logical.Over) name these axes, and splits by numbers go on to work. Without LogicalAxes a
	// replica has one axis, logical.AxisName.
	LogicalAxes []sharding.Axis
	// Variables are rules that split variables over the logical devices, and that say what of their
	// training the replicas share out (logical.Share). A variable that no rule matches is replicated
	// on all devices, as in TensorFlow. A variable that a rule assigns to one logical device is
	// stored whole on all of them, too.
	//
	// A rule that matches no variable by name and rank is an [*OptionError], unless it is Optional.
	// The strategy looks for such a variable in the step's store, in other stores and among those
	// of [TPUStrategy.NewVariable]. The error comes from the last function that could make the
	// variable: tracing a function refuses no rule while other functions with a store were made and
	// not traced yet. A training step has the whole model of its store, and waits for functions
	// over other stores only.
	//
	// A rule may name axes (logical.Over). One that names an axis that the replica lacks is an
	// [*OptionError]. A rule that has logical.ReplicaName alone in a dimension does for variables of
	// stores what logical.ShardParameters does, along that dimension.
	Variables logical.Rules
	// Semantics says which of TensorFlow's strategies this one behaves as, where they differ.
	Semantics Semantics
	// Precision is the precision of matrix multiplications; the default is bfloat16 passes on a TPU.
	Precision lowering.Precision
	// Logger receives messages that are no errors and may still surprise, such as input that every
	// process reads whole. Nil discards them.
	Logger *slog.Logger
	// Compiling is called for a compilation that takes long: after 10 seconds, and then at growing
	// intervals, from a goroutine of its own that the compilation waits for. Nil tells the Logger.
	Compiling func(Compilation)
	// CompilerOptions are XLA's debug options by name, for each program that the strategy compiles:
	// strings, bools, ints, int64s or float64s. JAX calls them compiler_options. Which there are is
	// the plugin's: xla_tpu_enable_latency_hiding_scheduler is one of libtpu's, and an unknown name
	// or value is an error of the first compilation. They are part of a compilation cache's keys.
	// With several processes give all the same. Some make a compiler take any amount of memory, or
	// end its process, and a compilation in this process goes on after its context's end: with
	// options of others' making, set Compiler to a pjrt/worker.
	//
	// The CPU plugin adds up float32 faster and less exactly (a running sum over each column) with
	// "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE", as JAX has it do.
	CompilerOptions map[string]any
	// Phases is called as each stage in the making of a step's program begins, and when the program
	// is there: what a line of progress is drawn from (package fit/progress). Calls for one
	// program come one after another from the goroutine that makes it, which waits for them; several
	// programs may be made at a time. Small programs of the strategy's own are not told of.
	Phases func(phase.Phase)
	// Compiler compiles the steps in place of the system's runtime: a cache of compiled programs
	// (package pjrt/cache), or a process of its own (package pjrt/worker), whose crash does not end
	// this process. Nil is the system's runtime. Ahead of time the strategy uses a Compiler that is
	// a [pjrt.TopologyCompiler].
	Compiler pjrt.Compiler
}

// TPUStrategy runs steps on the replicas of a device assignment: TensorFlow's
// tf.distribute.TPUStrategy. With several processes it takes the place of
// tf.distribute.experimental.MultiWorkerMirroredStrategy. It has the methods of TensorFlow's
// tf.distribute.Strategy that act on values and variables; package strategy/eager has the rest. It
// is safe for concurrent use.
type TPUStrategy struct {
	machine        *mesh.Machine
	slice          *system.Slice // of a machine that is only described, otherwise nil
	opts           Options
	assignment     tpu.DeviceAssignment
	target         lowering.Target
	replicas       int
	logicalDevices int           // of a replica
	axes           sharding.Mesh // of the logical devices
	whole          sharding.Mesh // of the replicas and the logical devices, over which rules lay variables out
	sharding       bool          // says that the replicas share out state

	// checkTraining checks the graph of each function that trains, once it is traced; nil for no check.
	// It is set before the first trace.
	checkTraining func(g *graph.Graph) error

	// generation counts the times that the buffers of variables changed other than by a step.
	// machine.Launch guards it.
	generation int

	closed atomic.Bool // changes under mu

	// sequence numbers the eager calls in which all processes take part.
	sequence atomic.Uint64

	mu       sync.Mutex
	programs []*program
	// values are the buffers of the values that are held or not yet collected.
	values    map[weak.Pointer[deviceValue]]mesh.Buffers
	variables map[*model.Store]*Variables
	builtins  map[string]*Function
	own       []*Variable // those of NewVariable
	constants sharedConstants
	rules     ruleUse
}

// New returns a strategy over the system's devices. It compiles nothing and takes no device memory
// yet. The system stays the caller's, and several strategies may share it: close them before it.
// Errors: an [*OptionError] names the option at fault; that of a system that was closed matches
// pjrt.ErrClosed.
func New(sys *system.System, opts Options) (*TPUStrategy, error) {
	if sys == nil {
		return nil, fault.New(errkind.ValueError, "there is no system", "see the error of system.Open", "it is nil")
	}
	if err := sys.Check(); err != nil {
		return nil, fault.Of("new", err, "")
	}
	s, err := newStrategy(sys.Topology(), opts)
	if err != nil {
		return nil, err
	}
	if sys.Platform() == "cpu" {
		s.target = lowering.TargetCPU
	}
	if s.machine, err = mesh.On(sys, s.opts.machine(s.assignment)); err != nil {
		return nil, &OptionError{Option: "Assignment", Reason: "does not fit the system", Err: err}
	}
	return s, nil
}

// machine describes the machine of a strategy with these options.
func (o *Options) machine(of tpu.DeviceAssignment) mesh.Options {
	return mesh.Options{Speaker: "strategy", Groups: of.DeviceIDs(), Compiler: o.Compiler, Overrides: o.CompilerOptions,
		GoesOn: o.goesOn(), Closed: ErrClosed, OutOfStep: outOfStep,
		Differ: func(what string, texts []string, differing []int) error {
			return &MismatchError{what, texts, differing}
		}}
}

// newStrategy is a strategy that does not know its devices yet.
func newStrategy(topology tpu.Topology, opts Options) (*TPUStrategy, error) {
	assignment := opts.Assignment
	if assignment.NumReplicas() == 0 {
		var err error
		of := opts.LogicalDevices
		if of == 0 { // those of the axes
			mesh, err := logical.Mesh(0, opts.LogicalAxes...)
			if err != nil {
				return nil, badAxes(err)
			}
			of = mesh.Size()
		}
		if assignment, err = assignmentOf(topology, opts.Replicas, of, opts.BySlice); err != nil {
			return nil, err
		}
	} else if opts.Replicas != 0 && opts.Replicas != assignment.NumReplicas() {
		return nil, &OptionError{Option: "Replicas", Reason: fmt.Sprintf(
			"%d, but the Assignment has %d; give one of them", opts.Replicas, assignment.NumReplicas())}
	} else if opts.LogicalDevices != 0 && opts.LogicalDevices != assignment.NumCoresPerReplica() {
		return nil, &OptionError{Option: "LogicalDevices", Reason: fmt.Sprintf(
			"%d, but the Assignment has %d; give one of them", opts.LogicalDevices, assignment.NumCoresPerReplica())}
	}
	// TensorFlow takes an assignment that names a core twice; no program can.
	if err := assignment.Validate(); err != nil {
		return nil, &OptionError{Option: "Assignment", Reason: "names a core twice", Err: err}
	}
	if err := checkSlices(topology, assignment, opts); err != nil {
		return nil, err
	}
	axes, err := logical.Mesh(assignment.NumCoresPerReplica(), opts.LogicalAxes...)
	if err != nil {
		return nil, badAxes(err)
	}
	opts.LogicalAxes = axes.Axes()
	whole, err := sharding.NewMesh(append([]sharding.Axis{{Name: logical.ReplicaName, Size: assignment.NumReplicas()}}, axes.Axes()...)...)
	if err != nil {
		return nil, badAxes(err)
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
	return &TPUStrategy{
		opts: opts, assignment: assignment,
		replicas: assignment.NumReplicas(), logicalDevices: assignment.NumCoresPerReplica(), axes: axes, whole: whole,
		sharding: assignment.NumReplicas() > 1 && opts.Variables.Uses(logical.ReplicaName),
		values:   map[weak.Pointer[deviceValue]]mesh.Buffers{}, variables: map[*model.Store]*Variables{}, builtins: map[string]*Function{},
	}, nil
}

// badAxes is the error of axes that are not right.
func badAxes(err error) error {
	return &OptionError{Option: "LogicalAxes", Reason: "not right", Err: err}
}

// NumReplicasInSync returns R, the number of replicas: TensorFlow's num_replicas_in_sync.
func (s *TPUStrategy) NumReplicasInSync() int { return s.replicas }

// NumLogicalDevices returns P, the number of logical devices of a replica.
func (s *TPUStrategy) NumLogicalDevices() int { return s.logicalDevices }

// LogicalMesh returns the named axes of a replica's logical devices, as [Options].LogicalAxes gives
// them.
func (s *TPUStrategy) LogicalMesh() sharding.Mesh { return s.axes }

// DeviceAssignment returns which device is which logical device of which replica.
func (s *TPUStrategy) DeviceAssignment() tpu.DeviceAssignment { return s.assignment }

// Semantics returns which of TensorFlow's strategies this one behaves as, where they differ.
func (s *TPUStrategy) Semantics() Semantics { return s.opts.Semantics }

// System returns the system that the strategy runs on, or nil ahead of time.
func (s *TPUStrategy) System() *system.System {
	return s.machine.System
}

// hold registers a value for Close. The value is held weakly, its buffers are not: they are
// released when the value is closed or collected.
func (s *TPUStrategy) hold(v *deviceValue) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() || s.values == nil { // a zero value
		return ErrClosed
	}
	p := weak.Make(v)
	s.values[p] = v.buffers
	runtime.AddCleanup(v, func(p weak.Pointer[deviceValue]) { _ = s.drop(p).Close() }, p)
	return nil
}

// drop forgets a value and returns its buffers, if they are still the strategy's to release.
func (s *TPUStrategy) drop(p weak.Pointer[deviceValue]) mesh.Buffers {
	s.mu.Lock()
	defer s.mu.Unlock()
	buffers := s.values[p]
	delete(s.values, p)
	return buffers
}

func (s *TPUStrategy) check() error {
	if s.closed.Load() || s.machine == nil { // a zero value
		return ErrClosed
	}
	return nil
}

// runnable refuses what needs devices. The words say what.
func (s *TPUStrategy) runnable(doing ...string) error {
	if s.slice == nil {
		return nil
	}
	return &Error{Match: ErrAheadOfTime, Op: "strategy: " + strings.Join(doing, " "), Hint: "open a system and use New to run",
		Reason: fmt.Sprintf("the strategy compiles ahead of time for %s, which is not here", s.slice.Facts().Name)}
}

// Close releases the strategy's programs, variables and values. The system stays open. A second
// Close does nothing. Steps under way run to their end, and keep what they need until then. Close
// gives up the compilations under way: a call that waits for one receives [ErrClosed], and a
// program that the compiler makes all the same is released when it comes. So a program can end in
// the middle of a compilation that takes minutes.
//
// Close waits for calls that are launching a step; [TPUStrategy.Shutdown] bounds that wait.
func (s *TPUStrategy) Close() error {
	if s == nil || s.machine == nil { // a zero value
		return nil
	}
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	s.mu.Lock()
	values, variables, programs, own := s.values, s.variables, s.programs, s.own
	s.closed.Store(true)
	s.values, s.variables, s.programs, s.own = nil, nil, nil, nil
	s.mu.Unlock()
	errs := s.machine.Close()
	for p, buffers := range values {
		if v := p.Value(); v != nil {
			errs = append(errs, v.free())
		}
		errs = append(errs, buffers.Close())
	}
	for _, v := range variables {
		errs = append(errs, v.free())
	}
	for _, v := range own {
		errs = append(errs, v.free())
	}
	for _, p := range programs {
		errs = append(errs, p.close())
	}
	return errors.Join(append(errs, s.constants.close()...)...)
}

// Shutdown closes the strategy as [TPUStrategy.Close] does, and returns when ctx ends at the
// latest. Close alone may wait long: launching a step waits while eight launches of its program are
// under way, and a device may not come back. The closing that ctx cuts short goes on in the
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
		return fault.Of("shutdown: the strategy did not close", context.Cause(ctx), "")
	}
}
