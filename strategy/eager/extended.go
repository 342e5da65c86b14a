package eager

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// Extended is the lower part of the strategy's contract: TensorFlow's
// StrategyExtended, for those who write optimizers, layers and loops. It is a thin
// view of the strategy; make one wherever it is needed.
type Extended struct{ strategy *strategy.TPUStrategy }

// Of returns the extended contract of a strategy: TensorFlow's strategy.extended. It
// costs nothing and holds nothing.
func Of(s *strategy.TPUStrategy) *Extended { return &Extended{strategy: s} }

// Strategy returns the strategy.
func (e *Extended) Strategy() *strategy.TPUStrategy { return e.strategy }

// WorkerDevices returns the replicas' devices: the column of the assignment for
// the logical device that ctx names, or 0.
func (e *Extended) WorkerDevices(ctx context.Context) []string {
	names := make([]string, e.strategy.NumReplicasInSync())
	for r := range names {
		names[r] = e.strategy.Machine().DeviceName(r, e.strategy.Machine().Column(ctx))
	}
	return names
}

// ParameterDevices returns where variables live: the worker devices.
func (e *Extended) ParameterDevices(ctx context.Context) []string { return e.WorkerDevices(ctx) }

// RequireStaticShapes reports whether a step's shapes are fixed when it is
// compiled. They are; MirroredStrategy answers false.
func (e *Extended) RequireStaticShapes() bool {
	return e.strategy.Semantics() != strategy.TensorFlowMirrored
}

// NumHosts returns the number of hosts that have a replica's first device.
func (e *Extended) NumHosts() int {
	hosts := map[string]bool{}
	for r := range e.strategy.NumReplicasInSync() {
		hosts[e.strategy.Machine().HostName(r)] = true
	}
	return len(hosts)
}

// NumReplicasPerHost returns how many replicas a host feeds.
func (e *Extended) NumReplicasPerHost() int {
	s := e.strategy
	return min(s.NumReplicasInSync(), max(1, s.System().Topology().NumTPUsPerTask()/s.NumLogicalDevices()))
}

// StepsPerRun is the number of steps of one launch of
// [Extended.RunStepsOnIterator] on the devices: 1, the loop is the host's.
func (e *Extended) StepsPerRun() int { return 1 }

// VariableCreatedInScope reports whether the variable is this strategy's.
func (e *Extended) VariableCreatedInScope(v *strategy.Variable) bool {
	return v != nil && v.Strategy() == e.strategy
}

// ColocateVarsWith returns a context in which new variables go where v is:
// TensorFlow's colocate_vars_with. Those of v's shape, such as an optimizer's slots, are
// split over the logical devices as v is, unless their own annotation says otherwise.
// ctx is of the strategy's scope.
func (e *Extended) ColocateVarsWith(ctx context.Context, v *strategy.Variable) (context.Context, error) {
	if err := e.strategy.Machine().RequireScope(ctx, "colocate"); err != nil {
		return nil, err
	}
	if !e.VariableCreatedInScope(v) {
		what := "no variable"
		if v != nil {
			what = fmt.Sprintf("variable %q of another strategy", v.Path())
		}
		return nil, fault.New(strategy.ValueError, "colocate", "give a variable of this strategy", "%s", what)
	}
	return e.strategy.Machine().Beside(ctx, v), nil
}

// LogicalDevice returns a context in which new variables go to logical device k of
// each replica, and WorkerDevices are those: TensorFlow's
// experimental_logical_device. Variables go to logical device 0 otherwise. A variable
// of another one that says nothing of its annotation is assigned to it.
func (e *Extended) LogicalDevice(ctx context.Context, k int) (context.Context, error) {
	if err := logical.AssignTo(k).Validate("", nil, e.strategy.NumLogicalDevices()); err != nil {
		return nil, &strategy.Error{Op: "strategy: logical device", Reason: fmt.Sprintf("%d is not one of the replica's %d", k, e.strategy.NumLogicalDevices()),
			Hint: fmt.Sprintf("use a number from 0 to %d", e.strategy.NumLogicalDevices()-1), Err: err, Class: strategy.ValueError}
	}
	return e.strategy.Machine().OnLogicalDevice(ctx, k), nil
}

// ValueContainer returns what holds a component: itself for TPUStrategy, the
// variable for MirroredStrategy. Everything else is its own container.
func (e *Extended) ValueContainer(x any) any {
	c, ok := x.(*strategy.Component)
	if !ok || e.strategy.Semantics() != strategy.TensorFlowMirrored {
		return x
	}
	if c.Variable() != nil {
		return c.Variable()
	}
	return c.Value()
}

// ReadVar returns the variable's value across replicas: [strategy.Variable.Read].
func (e *Extended) ReadVar(ctx context.Context, v *strategy.Variable) (*strategy.Mirrored, error) {
	if !e.VariableCreatedInScope(v) {
		return nil, &strategy.StrategyError{Op: "read", Subject: "the variable"}
	}
	return v.Read(ctx)
}

// BroadcastTo puts a host value on the destination: TensorFlow's broadcast_to. As
// in TPUStrategy it is returned as it is, since what a step takes is copied there
// anyway; numbers are too in MirroredStrategy, whose tensors become *[strategy.Mirrored]. In a
// merge call of a compiled step *[strategy.Merged] values become replica 0's on all replicas.
func (e *Extended) BroadcastTo(ctx context.Context, value any, to Destination) (any, error) {
	s := e.strategy
	if err := s.Machine().RequireCross(ctx, "broadcast"); err != nil {
		return nil, err
	}
	p, err := e.destination("broadcast", to)
	if err != nil {
		return nil, err
	}
	if t, err := s.Machine().CrossTracing(ctx, "broadcast"); err != nil {
		return nil, err
	} else if t != nil {
		return broadcastIn(t, value)
	}
	switch value.(type) {
	case int, int32, int64, float32, float64, bool, strategy.Value, *strategy.Variable, *strategy.Component:
		return value, nil
	}
	if s.Semantics() != strategy.TensorFlowMirrored {
		return value, nil
	}
	t, err := s.Machine().Host(value)
	if err != nil {
		return nil, s.Machine().NoTensor("broadcast", err)
	}
	m, err := s.Mirror(ctx, t, p.of(t.Shape().Dimensions, logical.Annotation{}))
	if err != nil {
		return nil, err
	}
	return e.settle(ctx, m, p)
}
