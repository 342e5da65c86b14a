package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// Extended is the lower part of the strategy's contract: TensorFlow's
// StrategyExtended, for those who write optimizers, layers and loops. It is a thin
// view of the strategy; make one wherever it is needed.
type Extended struct{ strategy *TPUStrategy }

// Extended returns the strategy's extended contract.
func (s *TPUStrategy) Extended() *Extended { return &Extended{strategy: s} }

// Strategy returns the strategy.
func (e *Extended) Strategy() *TPUStrategy { return e.strategy }

// deviceName is TensorFlow's name of a logical device of a replica.
func (s *TPUStrategy) deviceName(replica, column int) string {
	id := s.assignment.DeviceIDs()[replica][column]
	task, ordinal := 0, id
	for t, ids := range s.sys.Topology().DeviceIDs() {
		if i := slices.Index(ids, id); i >= 0 {
			task, ordinal = t, i
		}
	}
	return fmt.Sprintf("/job:%s/replica:0/task:%d/device:%s:%d", s.job(), task, strings.ToUpper(s.sys.Platform()), ordinal)
}

// hostName is the name of a replica's host.
func (s *TPUStrategy) hostName(replica int) string {
	task, _ := s.sys.Topology().TaskOfDevice(s.assignment.DeviceIDs()[replica][0])
	return fmt.Sprintf("/job:%s/replica:0/task:%d/device:CPU:0", s.job(), task)
}

func (s *TPUStrategy) job() string {
	if s.sys.Platform() == "cpu" {
		return "localhost"
	}
	return "worker"
}

// WorkerDevices returns the replicas' devices: the column of the assignment for
// the logical device that ctx names, or 0.
func (e *Extended) WorkerDevices(ctx context.Context) []string {
	names := make([]string, e.strategy.replicas)
	for r := range names {
		names[r] = e.strategy.deviceName(r, columnOf(ctx))
	}
	return names
}

// ParameterDevices returns where variables live: the worker devices.
func (e *Extended) ParameterDevices(ctx context.Context) []string { return e.WorkerDevices(ctx) }

// RequireStaticShapes reports whether a step's shapes are fixed when it is
// compiled. They are; MirroredStrategy answers false.
func (e *Extended) RequireStaticShapes() bool {
	return e.strategy.opts.Semantics != TensorFlowMirrored
}

// NumHosts returns the number of hosts that have a replica's first device.
func (e *Extended) NumHosts() int {
	hosts := map[string]bool{}
	for r := range e.strategy.replicas {
		hosts[e.strategy.hostName(r)] = true
	}
	return len(hosts)
}

// NumReplicasPerHost returns how many replicas a host feeds.
func (e *Extended) NumReplicasPerHost() int {
	s := e.strategy
	return min(s.replicas, max(1, s.sys.Topology().NumTPUsPerTask()/s.perReplica))
}

// StepsPerRun is the number of steps of one launch of
// [Extended.RunStepsOnIterator] on the devices: 1, the loop is the host's.
func (e *Extended) StepsPerRun() int { return 1 }

// HardwareFeature describes the cores.
func (e *Extended) HardwareFeature() HardwareFeature { return HardwareFeature{} }

// HardwareFeature says what the cores can do besides compute. No embedding engine
// is driven here.
type HardwareFeature struct {
	// Embedding is UNSUPPORTED, V1 or V2 in TensorFlow; empty is UNSUPPORTED.
	Embedding string
}

// ShouldInit, ShouldCheckpoint and ShouldSaveSummary report what this process does
// for the whole run in TensorFlow 1's loops: everything, as every process has all
// variables. BetweenGraph is false: there is one program.
func (e *Extended) ShouldInit() bool { return true }

// ShouldCheckpoint is true.
func (e *Extended) ShouldCheckpoint() bool { return true }

// ShouldSaveSummary is true.
func (e *Extended) ShouldSaveSummary() bool { return true }

// BetweenGraph is false.
func (e *Extended) BetweenGraph() bool { return false }

// VariableCreatedInScope reports whether the variable is this strategy's.
func (e *Extended) VariableCreatedInScope(v *Variable) bool {
	return v != nil && v.strategy == e.strategy
}

// ColocateVarsWith returns a context in which new variables go where v is:
// TensorFlow's colocate_vars_with. Those of v's shape, such as an optimizer's slots, are
// split over the logical devices as v is, unless their own annotation says otherwise.
// ctx is of the strategy's scope.
func (e *Extended) ColocateVarsWith(ctx context.Context, v *Variable) (context.Context, error) {
	if err := e.strategy.requireScope(ctx, "colocate"); err != nil {
		return nil, err
	}
	if !e.VariableCreatedInScope(v) {
		what := "no variable"
		if v != nil {
			what = fmt.Sprintf("variable %q of another strategy", v.path)
		}
		return nil, fault.New(ValueError, "colocate", "give a variable of this strategy", "%s", what)
	}
	return context.WithValue(context.WithValue(ctx, columnKey{}, v.column), colocateKey{}, v), nil
}

// colocateKey holds the variable that new ones go to.
type colocateKey struct{}

type columnKey struct{}

// columnOf is the logical device that ctx names, or 0.
func columnOf(ctx context.Context) int {
	k, _ := ctx.Value(columnKey{}).(int)
	return k
}

// LogicalDevice returns a context in which new variables go to logical device k of
// each replica, and WorkerDevices are those: TensorFlow's
// experimental_logical_device. Variables go to logical device 0 otherwise. A variable
// of another one that says nothing of its annotation is assigned to it.
func (e *Extended) LogicalDevice(ctx context.Context, k int) (context.Context, error) {
	if err := logical.AssignTo(k).Validate("", nil, e.strategy.perReplica); err != nil {
		return nil, &Error{Op: "strategy: logical device", Reason: fmt.Sprintf("%d is not one of the replica's %d", k, e.strategy.perReplica),
			Hint: fmt.Sprintf("use a number from 0 to %d", e.strategy.perReplica-1), Err: err, Class: ValueError}
	}
	return context.WithValue(context.WithValue(ctx, columnKey{}, k), colocateKey{}, (*Variable)(nil)), nil
}

// Devices returns the names of the variable's components' devices, in replica
// order: of each replica the logical device that the component is named by, as in
// TensorFlow. The replica's other logical devices hold a part of the variable, or a copy
// of it, too: [Variable.Shards] lists them all.
func (v *Variable) Devices() []string {
	names := make([]string, v.strategy.replicas)
	for r := range names {
		names[r] = v.strategy.deviceName(r, v.column)
	}
	return names
}

// ValueContainer returns what holds a component: itself for TPUStrategy, the
// variable for MirroredStrategy. Everything else is its own container.
func (e *Extended) ValueContainer(x any) any {
	c, ok := x.(*Component)
	if !ok || e.strategy.opts.Semantics != TensorFlowMirrored {
		return x
	}
	if c.variable != nil {
		return c.variable
	}
	return c.value
}

// ReadVar returns the variable's value across replicas: [Variable.Read].
func (e *Extended) ReadVar(ctx context.Context, v *Variable) (*Mirrored, error) {
	if !e.VariableCreatedInScope(v) {
		return nil, &StrategyError{Op: "read", Subject: "the variable"}
	}
	return v.Read(ctx)
}

// ReduceTo reduces a value, or the values of a nest, to a destination, without axes:
// TensorFlow's reduce_to. See [TPUStrategy.ReduceNest] for what is reduced, and [To] and
// [ToDevices] for where it comes to be; the destination itself is not changed. The
// result is the caller's: a *[Mirrored], on fewer devices if the destination is some of
// them, or a *tensors.Tensor if it is a host. In a merge call of a compiled step, with
// [MergeContext.Context], it takes and gives *[Merged] values and is part of the step.
//
// Errors: those of ReduceNest; *[Error] of kind ValueError for a device that is not the
// strategy's, of kind AssertionError for no destination; *[StrategyError] for a
// destination of another strategy.
func (e *Extended) ReduceTo(ctx context.Context, op ReduceOp, value any, to Destination) (any, error) {
	results, err := e.reduceTo(ctx, "reduce to", op, []ReducePair{{value, to}})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// ReducePair is a value of [Extended.BatchReduceTo] and where it goes.
type ReducePair struct {
	Value any
	To    Destination
}

// BatchReduceTo is [Extended.ReduceTo] of several values, in order: TensorFlow's
// batch_reduce_to. All are reduced by one program, which is compiled for their shapes
// and kept. If one of them cannot be reduced, none is, and the error says which.
func (e *Extended) BatchReduceTo(ctx context.Context, op ReduceOp, pairs []ReducePair) ([]any, error) {
	return e.reduceTo(ctx, "batch reduce to", op, pairs)
}

// BroadcastTo puts a host value on the destination: TensorFlow's broadcast_to. As
// in TPUStrategy it is returned as it is, since what a step takes is copied there
// anyway; numbers are too in MirroredStrategy, whose tensors become *[Mirrored]. In a
// merge call of a compiled step *[Merged] values become replica 0's on all replicas.
func (e *Extended) BroadcastTo(ctx context.Context, value any, to Destination) (any, error) {
	s := e.strategy
	if err := s.requireCross(ctx, "broadcast"); err != nil {
		return nil, err
	}
	p, err := e.destination("broadcast", to)
	if err != nil {
		return nil, err
	}
	if t, err := s.crossTracing(ctx, "broadcast"); err != nil {
		return nil, err
	} else if t != nil {
		return t.broadcast(value)
	}
	switch value.(type) {
	case int, int32, int64, float32, float64, bool, Value, *Variable, *Component:
		return value, nil
	}
	if s.opts.Semantics != TensorFlowMirrored {
		return value, nil
	}
	t, err := hostTensor(value)
	if err != nil {
		return nil, noTensor("broadcast", err)
	}
	m, err := s.Mirror(ctx, t, p.of(t.Shape().Dimensions, logical.Annotation{}))
	if err != nil {
		return nil, err
	}
	return s.settle(ctx, m, p)
}
