package eager

import (
	"context"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Extended is the lower-level API of a strategy, TensorFlow's StrategyExtended, for authors of
// optimizers, layers and loops. It has no state; create one with [Of] wherever it is needed.
type Extended struct{ strategy *strategy.TPUStrategy }

// Of returns the extended API of a strategy, like TensorFlow's strategy.extended.
func Of(s *strategy.TPUStrategy) *Extended { return &Extended{strategy: s} }

func (e *Extended) Strategy() *strategy.TPUStrategy { return e.strategy }

// WorkerDevices returns the name of one device of each replica, like TensorFlow's worker_devices:
// logical device 0, or the device that ctx specifies with [Extended.LogicalDevice] or
// [Extended.ColocateVarsWith].
func (e *Extended) WorkerDevices(ctx context.Context) []string {
	at := mode.PlaceFromContext(ctx)
	if v, ok := at.Beside.(*strategy.Variable); ok && e.VariableCreatedInScope(v) {
		return v.Devices()
	}
	devices, _, _ := engine.Internal(e.strategy).DeviceNames()
	names := make([]string, len(devices))
	for r := range names {
		names[r] = devices[r][at.LogicalDevice]
	}
	return names
}

// ParameterDevices returns the devices that store variables. These are the worker devices. It
// corresponds to TensorFlow's parameter_devices.
func (e *Extended) ParameterDevices(ctx context.Context) []string { return e.WorkerDevices(ctx) }

// RequireStaticShapes reports whether a step's shapes are fixed at compile time, like TensorFlow's
// experimental_require_static_shapes. It returns false with [strategy.TensorFlowMirrored],
// otherwise true.
func (e *Extended) RequireStaticShapes() bool {
	return e.strategy.Semantics() != strategy.TensorFlowMirrored
}

// NumHosts returns the number of hosts that have the first logical device of at least one replica.
func (e *Extended) NumHosts() int {
	_, hosts, _ := engine.Internal(e.strategy).DeviceNames()
	slices.Sort(hosts)
	return len(slices.Compact(hosts))
}

func (e *Extended) NumReplicasPerHost() int {
	s := e.strategy
	_, _, devices := engine.Internal(s).DeviceNames()
	return min(s.NumReplicasInSync(), max(1, devices/s.NumLogicalDevices()))
}

// StepsPerRun returns 1, because the loop of [Extended.RunStepsOnIterator] runs on the host and
// launches one step at a time.
func (e *Extended) StepsPerRun() int { return 1 }

// VariableCreatedInScope reports whether this strategy created the variable, like TensorFlow's
// variable_created_in_scope. The scope in which the variable was created does not matter.
func (e *Extended) VariableCreatedInScope(v *strategy.Variable) bool {
	return v != nil && v.Strategy() == e.strategy
}

// ColocateVarsWith returns a context in which new variables are placed on the logical device of v.
// A new variable with the shape of v also has the annotation of v. It corresponds to TensorFlow's
// colocate_vars_with. ctx must belong to the strategy's scope or its replica code. In replica code,
// create the variable with the result of [ReplicaContextOf].
func (e *Extended) ColocateVarsWith(ctx context.Context, v *strategy.Variable) (context.Context, error) {
	const op = "colocate"
	switch s, ok := FromContext(ctx); {
	case !ok:
		return nil, &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op,
			Reason: "called outside the strategy's scope", Hint: "pass the context that Scope returns, or that of replica code"}
	case s != e.strategy:
		return nil, fault.OtherStrategy(op, "the scope of the call")
	}
	if !e.VariableCreatedInScope(v) {
		what := "no variable"
		if v != nil {
			what = fmt.Sprintf("variable %q of another strategy", v.Path())
		}
		return nil, fault.New(errkind.ValueError, op, "pass a variable of this strategy", "%s", what)
	}
	return mode.WithPlace(ctx, mode.Place{Beside: v}), nil
}

// LogicalDevice returns a context that selects logical device k of each replica. New variables
// without an annotation are assigned to these devices, and [Extended.WorkerDevices] returns their
// names. It corresponds to TensorFlow's experimental_logical_device. The default is 0.
func (e *Extended) LogicalDevice(ctx context.Context, k int) (context.Context, error) {
	if err := logical.AssignTo(k).ValidateOn(e.strategy.LogicalMesh(), "", nil); err != nil {
		return nil, &strategy.Error{Op: "strategy: logical device",
			Reason: fmt.Sprintf("%d is not one of the replica's %d", k, e.strategy.NumLogicalDevices()),
			Hint:   fmt.Sprintf("use a number from 0 to %d", e.strategy.NumLogicalDevices()-1), Err: err,
			Class: errkind.ValueError}
	}
	return mode.WithPlace(ctx, mode.Place{LogicalDevice: k}), nil
}

// ValueContainer returns x unchanged. With [strategy.TensorFlowMirrored] and a component, it
// returns the variable or value to which the component belongs, like TensorFlow's value_container.
func (e *Extended) ValueContainer(x any) any {
	c, ok := x.(Component)
	if !ok || e.strategy.Semantics() != strategy.TensorFlowMirrored {
		return x
	}
	return c.source()
}

// ReadVar returns the variable's cross-replica value, like [strategy.Variable.Read] and
// TensorFlow's read_var. In replica code it is a collective call. With
// [strategy.TensorFlowMirrored], replica code cannot read an [strategy.OnRead] variable that
// aggregates: the error matches [strategy.ErrContext], as in TensorFlow.
func (e *Extended) ReadVar(ctx context.Context, v *strategy.Variable) (*strategy.Mirrored, error) {
	if !e.VariableCreatedInScope(v) {
		return nil, fault.OtherStrategy("read", "the variable")
	}
	rc, ok := ReplicaContextOf(ctx)
	if !ok {
		return v.Read(ctx)
	}
	if rc.strategy != e.strategy {
		return nil, fault.OtherStrategy("read", "the scope of the call")
	}
	combines := v.Synchronization() == strategy.OnRead && (v.Aggregation() == strategy.AggregateSum ||
		v.Aggregation() == strategy.AggregateMean)
	if combines && e.strategy.Semantics() == strategy.TensorFlowMirrored {
		return nil, engine.Internal(e.strategy).CheckCrossReplica(ctx, fmt.Sprintf("read %q", v.Path()))
	}
	m, err := rc.callCollective("ReadVar "+v.Path(), v, nil, func(all []any) ([]any, error) {
		m, err := v.Read(rc.callerContext())
		if err != nil {
			return nil, err
		}
		return slices.Repeat([]any{m}, len(all)), nil
	})
	if err != nil {
		return nil, err
	}
	return m.(*strategy.Mirrored), nil
}

// BroadcastTo copies one value to the destination, like TensorFlow's broadcast_to. A [Component]
// becomes a *[strategy.Mirrored] with the component's tensor on every replica. As in TPUStrategy,
// any other value is returned unchanged, because a step copies its arguments to the devices anyway.
//
// With [strategy.TensorFlowMirrored], tensors and variables also become a *[strategy.Mirrored].
// With [strategy.TensorFlowTPU], components are also returned unchanged. In a merge call of a
// compiled step, BroadcastTo returns replica 0's tensor of a *[MergeValue] on all replicas.
func (e *Extended) BroadcastTo(ctx context.Context, value any, to Destination) (any, error) {
	s := e.strategy
	mc, err := e.mergeContext(ctx, "broadcast")
	if err != nil {
		return nil, err
	}
	p, err := e.placementOf("broadcast", to)
	switch {
	case err != nil:
		return nil, err
	case mc != nil:
		return mc.broadcast(value)
	}
	mirrored := s.Semantics() == strategy.TensorFlowMirrored
	var shape []int
	switch x := value.(type) {
	case Component:
		if s.Semantics() == strategy.TensorFlowTPU {
			return value, nil
		}
		if x == (Component{}) {
			return nil, fault.New(errkind.TypeError, "broadcast", "create it with Extended.Component",
				"a component of nothing")
		}
		shape = x.Shape().Dimensions
	case *strategy.Variable:
		if !mirrored || x == nil {
			return value, nil
		}
		shape = x.Shape().Dimensions
	case int, int32, int64, float32, float64, bool, strategy.Value:
		return value, nil
	default:
		if !mirrored {
			return value, nil
		}
		t, err := hostdata.ToTensor(value)
		if err != nil {
			return nil, &strategy.Error{Op: "strategy: broadcast", Reason: "not a tensor", Err: err,
				Class: errkind.KindOr(err, errkind.ValueError)}
		}
		value, shape = t, t.Shape().Dimensions
	}
	m, err := s.Mirror(ctx, value, p.annotationFor(shape, logical.Annotation{}))
	if err != nil {
		return nil, err
	}
	return e.moveResult(ctx, m, p)
}
