package strategy

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
)

// Writes of a variable outside of replicas: from the host, a merge call or an update. They do not
// aggregate.

// Assign sets all components to a value with the variable's shape and dtype, like TensorFlow's
// assign outside the replicas. The value is a host value, a *[Mirrored], an [eager.Component], or
// another *Variable, also of another strategy that has all devices of this one. A *[PerReplica] is
// valid if its tensors are known to be equal, or with [VariableOptions].LocalWrites. A Go number is
// converted to the dtype of a scalar variable. If the dtype cannot represent the number, such as
// 2.5 for Int32, Assign returns an [*Error].
//
// For an [OnRead] variable with AggregateSum, each component is set to the value divided by the
// number of replicas; integers truncate.
func (v *Variable) Assign(ctx context.Context, value any) error {
	return v.write(ctx, assign.Set, value)
}

// AssignAdd adds a value to all components, like TensorFlow's assign_add outside the replicas. It
// returns an [*Error] for an [OnRead] variable with AggregateSum.
func (v *Variable) AssignAdd(ctx context.Context, value any) error {
	return v.write(ctx, assign.Add, value)
}

// AssignSub subtracts a value from all components, like TensorFlow's assign_sub outside the
// replicas. It returns the same errors as [Variable.AssignAdd].
func (v *Variable) AssignSub(ctx context.Context, value any) error {
	return v.write(ctx, assign.Sub, value)
}

// write writes one component if ctx belongs to an update function, and otherwise all components.
func (v *Variable) write(ctx context.Context, w assign.Op, value any) error {
	op := fmt.Sprintf("%s %q", w.Name, v.path)
	code, err := v.writer(ctx, op)
	if err != nil {
		return err
	}
	if code != nil {
		return code.Write(w, v, value)
	}
	return v.crossWrite(ctx, w, value)
}

func (v *Variable) crossWrite(ctx context.Context, w assign.Op, value any) error {
	op := fmt.Sprintf("%s %q", w.Name, v.path)
	if err := v.checkCrossReplica(ctx, op); err != nil {
		return err
	}
	summed := v.synchronization == OnRead && v.aggregation == AggregateSum
	if summed && w.Name != assign.Set.Name {
		return fault.New(errkind.ValueError, op, "assign a total, or write in the replicas",
			"a variable that is summed on read has no one component to change")
	}
	if summed {
		if err := number.CheckSummableTraced(op, v.dtype); err != nil {
			return err
		}
	}
	c, err := v.resolveSource(ctx, op, value)
	if err != nil {
		return err
	}
	if c.host != nil {
		if w.Name == assign.Set.Name && !summed {
			return v.replaceValue(ctx, op, c.host)
		}
		if c, err = newTemporary(v.strategy.Mirror(ctx, c.host, v.annotation)); err != nil {
			return err
		}
	}
	_, err = builtinCall{
		name: w.Name, values: []Value{c.value}, variables: []*Variable{v},
		step: func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			x := in[0]
			if summed {
				x = divideByReplicas(x, rc.strategy.replicas)
			}
			rc.setVariable(op, rc.capture(op, v), x, w.Apply)
			return nil
		},
	}.run(ctx, v.strategy)
	return errors.Join(err, c.release())
}

// resolveSource converts x, the new value of the variable, to a host tensor with the variable's
// shape and dtype, or to a value on the devices.
func (v *Variable) resolveSource(ctx context.Context, op string, x any) (c resolvedOperand, err error) {
	s, o := v.strategy, operandOf(x)
	other := o.variable
	switch {
	case o.kind != deviceOperand:
	case other == nil || other.strategy != s || o.replica >= 0:
		c, err = o.resolve(ctx, s, op)
	case v.synchronization == OnRead || other.synchronization == OnRead && s.replicas == 1:
		// A mirrored variable accepts the components of any distributed value.
		c, err = newTemporary(other.Read(ctx))
	default:
		c, err = newTemporary(other.copyComponents(ctx))
	}
	if err != nil {
		return resolvedOperand{}, err
	}
	if c.value == nil {
		if c.host != nil {
			x = c.host // tensor of a component
		}
		c.host, err = v.convertHostValue(op, x)
		return c, err
	}
	if err := v.checkAssignable(op, c.value.base()); err != nil {
		return resolvedOperand{}, errors.Join(err, c.release())
	}
	return c, nil
}

// checkAssignable returns an error if the value cannot be assigned to the variable.
func (v *Variable) checkAssignable(op string, x *deviceValue) error {
	if x.isVarying() {
		switch {
		case v.synchronization == OnRead:
			return fault.New(errkind.TypeError, op, "write it in the replicas",
				"a PerReplica value for a variable that is combined on read")
		case v.aggregation != AggregateNone && v.strategy.opts.Semantics != TensorFlowMirrored:
			return fault.New(errkind.TypeError, op, "reduce it first",
				"a PerReplica value where one for all replicas is expected")
		case !v.localWrites:
			return fault.New(errkind.TypeError, op, "reduce it first, or create the variable with LocalWrites",
				"a PerReplica value for a mirrored variable")
		}
	}
	if x.replicaShapes != nil || !x.Shape().Equal(v.Shape()) {
		return fault.New(errkind.ValueError, op, "give a value of its shape and dtype",
			"a value of shape %s for a variable of shape %s", x.Shape(), v.Shape())
	}
	return nil
}

// convertHostValue converts a value to a tensor of the variable's shape and dtype. Only Go numbers
// are converted to another dtype.
func (v *Variable) convertHostValue(op string, value any) (*tensors.Tensor, error) {
	if number.IsNumber(value) && len(v.shape) == 0 {
		var err error
		if value, err = number.Convert(op, value, v.dtype); err != nil {
			return nil, err
		}
	}
	t, err := operandOf(value).toHostTensor(op)
	if err != nil {
		return nil, err
	}
	if !t.Shape().Equal(v.Shape()) {
		return nil, fault.New(errkind.ValueError, op, "give a value of its shape and dtype",
			"a value of shape %s for a variable of shape %s", t.Shape(), v.Shape())
	}
	return t, nil
}

// replaceValue copies a host value to all components, in new buffers.
func (v *Variable) replaceValue(ctx context.Context, op string, value *tensors.Tensor) error {
	s := v.strategy
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	if err := v.checkOpen(); err != nil {
		return err
	}
	fresh, err := v.uploadValue(ctx, value)
	if err == nil {
		err = v.replaceBuffers(fresh)
	}
	if err != nil {
		return fault.Wrap(op, err, "")
	}
	return nil
}

// RestoreValue writes a checkpoint's value like [Variable.Assign], on any number of replicas. For
// an [OnRead] variable with AggregateSum, integers truncate as in TensorFlow: 7 on 2 replicas is
// read back as 6.
func (v *Variable) RestoreValue(ctx context.Context, saved *tensors.Tensor) error {
	if err := RefuseTracing(ctx, fmt.Sprintf("restore %q", v.path), fault.InsteadOfMeeting); err != nil {
		return err
	}
	if v.synchronization == OnRead && v.aggregation == AggregateNone {
		_, err := v.aggregation.ReduceOp()
		return err
	}
	return v.crossWrite(ctx, assign.Set, saved)
}
