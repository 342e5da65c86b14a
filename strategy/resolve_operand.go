package strategy

import (
	"context"
	"errors"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/logical"
)

// resolvedOperand is an operand after resolve: either a tensor in host memory or a value on the
// strategy's devices.
type resolvedOperand struct {
	host      *tensors.Tensor
	value     Value
	temporary bool // release closes the value
}

// newTemporary returns a resolved operand for a new value. Its release closes the value.
func newTemporary[T Value](v T, err error) (resolvedOperand, error) {
	if err != nil {
		return resolvedOperand{}, err
	}
	return resolvedOperand{value: v, temporary: true}, nil
}

func (c resolvedOperand) release() error {
	if c.temporary {
		return c.value.Close()
	}
	return nil
}

// resolve converts an operand to a host tensor or a value of the strategy. A variable is converted
// to a copy of its value, or to a copy of its components if these may differ. A component is
// converted to a tensor that is the same on all replicas. An operand of another strategy is
// converted to a copy of its cross-replica value, if the other strategy has all devices of this
// one.
func (o operand) resolve(ctx context.Context, s *TPUStrategy, op string) (resolvedOperand, error) {
	switch of := o.strategy(); {
	case of == nil:
		host, err := o.toHostTensor(op)
		return resolvedOperand{host: host}, err
	case of != s && o.isValue() && o.value.base().isVarying():
		return resolvedOperand{}, checkOwnedBy(s, o.value)
	case of != s:
		return o.copyFromOtherStrategy(ctx, s, op)
	case o.replica >= 0:
		return o.resolveComponent(ctx, s, op)
	case o.value != nil:
		return resolvedOperand{value: o.value}, nil
	case s.slice != nil: // ahead of time there are no contents
		v := o.variable
		return newTemporary(s.newValue(v.perReplica(), v.dtype, v.shape, v.annotation, nil))
	}
	return newTemporary(o.variable.copyComponents(ctx))
}

// resolveComponent converts the component of one replica to a tensor that is the same on all
// replicas.
func (o operand) resolveComponent(ctx context.Context, s *TPUStrategy, op string) (resolvedOperand, error) {
	if v := o.variable; v != nil {
		if v.perReplica() {
			return newTemporary(o.copyComponent(ctx, s))
		}
		return newTemporary(v.copyComponents(ctx))
	}
	base := o.value.base()
	switch {
	case base.steps > 0:
		return resolvedOperand{}, fault.New(errkind.TypeError, op, "give the result of a step",
			"a part of a value of several steps")
	case !base.isVarying() && base.replicaShapes == nil:
		return newTemporary(copyMirrored(ctx, o.value, base.annotation))
	case base.replicaShapes != nil || s.replicas == 1: // the shape may differ from other replicas'
		t, err := o.value.Local(ctx, o.replica)
		return resolvedOperand{host: t}, err
	}
	return newTemporary(o.copyComponent(ctx, s))
}

// copyComponent copies the component of one replica to a new value that is the same on all
// replicas.
func (o operand) copyComponent(ctx context.Context, s *TPUStrategy) (*Mirrored, error) {
	replica, err := s.Mirror(ctx, int32(o.replica), logical.Annotation{})
	if err != nil {
		return nil, err
	}
	defer replica.Close()
	c := builtinCall{name: "part", values: []Value{replica}, mirrored: true}
	if v := o.variable; v != nil {
		c.variables, c.results = []*Variable{v}, oneAnnotation(v.annotation)
		c.step = func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.selectReplica(in[0], rc.Read(v))}
		}
	} else {
		c.values, c.results = append(c.values, o.value), oneAnnotation(o.value.Annotation())
		c.step = func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.selectReplica(in[0], in[1])}
		}
	}
	return c.runMirrored(ctx, s)
}

// resolveSingle converts an operand to one value for all replicas. It returns an error for a value
// that may differ between replicas.
func (o operand) resolveSingle(ctx context.Context, s *TPUStrategy, op string) (resolvedOperand, error) {
	if v := o.variable; v != nil && v.strategy == s && o.replica < 0 && v.perReplica() {
		return newTemporary(v.readCombined(mode.With(ctx, mode.Cross(s))))
	}
	c, err := o.resolve(ctx, s, op)
	if err != nil || c.value == nil {
		return c, err
	}
	base := c.value.base()
	switch {
	case base.steps > 0:
		err = fault.New(errkind.TypeError, op, "give the result of a step", "a value of several steps")
	case base.isVarying() && s.replicas > 1:
		err = fault.New(errkind.TypeError, op, "reduce it first", "a PerReplica value where one for all replicas is expected")
	case base.perReplica:
		var m *Mirrored
		if m, err = copyMirrored(ctx, c.value, base.annotation); err == nil {
			err = c.release()
			c = resolvedOperand{value: m, temporary: true}
		}
	}
	if err != nil {
		return resolvedOperand{}, errors.Join(err, c.release())
	}
	return c, nil
}

// resolveMirrored converts an operand to a mirrored value on the devices.
func (o operand) resolveMirrored(ctx context.Context, s *TPUStrategy, op string) (resolvedOperand, error) {
	c, err := o.resolveSingle(ctx, s, op)
	if err != nil || c.value != nil {
		return c, err
	}
	return newTemporary(s.Mirror(ctx, c.host, logical.Annotation{}))
}

// resolveHost converts an operand to a tensor in this process.
func (o operand) resolveHost(ctx context.Context, s *TPUStrategy, op string) (*tensors.Tensor, error) {
	c, err := o.resolveSingle(ctx, s, op)
	if err != nil || c.value == nil {
		return c.host, err
	}
	host, err := c.value.(*Mirrored).copyToHost(ctx)
	return host, errors.Join(err, c.release())
}

// copyHost copies an operand from host or device memory to a host tensor.
func (o operand) copyHost(ctx context.Context, s *TPUStrategy) (*tensors.Tensor, error) {
	if o.isReadable() {
		return o.resolveHost(ctx, s, "copy")
	}
	return o.toTensor()
}

// resolveArgument converts an operand to a value on the devices, which the caller must close.
func (o operand) resolveArgument(ctx context.Context, s *TPUStrategy, op string) (Value, error) {
	c, err := o.resolve(ctx, s, op)
	if err != nil || c.value != nil {
		return c.value, err
	}
	return asValue(s.Mirror(ctx, c.host, logical.Annotation{}))
}

// mirror implements [TPUStrategy.Mirror] for an operand on the devices.
func (o operand) mirror(ctx context.Context, s *TPUStrategy, a logical.Annotation) (*Mirrored, error) {
	if o.isValue() && o.strategy() == s && o.value.base().isVarying() && s.replicas > 1 {
		return nil, fault.New(errkind.ValueError, "mirror", "reduce it first, or take one replica's part",
			"%s, which has a value for each replica", o)
	}
	c, err := o.resolveSingle(ctx, s, "mirror")
	if err != nil {
		return nil, err
	}
	if c.value == nil {
		return s.Mirror(ctx, c.host, a)
	}
	m, err := copyMirrored(ctx, c.value, a)
	return m, errors.Join(err, c.release())
}

// copyToHost copies a mirrored value to the host, even if its shards are in several processes.
func (m *Mirrored) copyToHost(ctx context.Context) (*tensors.Tensor, error) {
	if m.strategy.isReadableEverywhere(false, m.annotation) {
		return m.Value(ctx)
	}
	whole, err := copyMirrored(ctx, m, logical.Replicated())
	if err != nil {
		return nil, err
	}
	defer whole.Close()
	return whole.Value(ctx)
}

// A strategy may read values of another strategy with the same devices, for example to train on all
// cores and evaluate on one. The other strategy copies the value on its devices, and this strategy
// takes over the copies on common devices. The data does not pass through the host.

// copyFromOtherStrategy copies an operand of another strategy to a mirrored value of this strategy.
func (o operand) copyFromOtherStrategy(ctx context.Context, s *TPUStrategy, op string) (resolvedOperand, error) {
	other := o.strategy()
	from, ok := mapPartitions(s.runtime, other.runtime)
	if !ok {
		return resolvedOperand{}, fault.OtherStrategy(op, o.String())
	}
	outer := mode.With(ctx, mode.Cross(other))
	c, err := o.resolveSingle(outer, other, op)
	if err != nil || c.value == nil {
		return c, err
	}
	// The copy is replicated on each device and has no other owner.
	whole, err := copyMirrored(outer, c.value, logical.Replicated())
	if err = errors.Join(err, c.release()); err != nil {
		return resolvedOperand{}, err
	}
	return newTemporary(s.moveBuffers(whole, from))
}

// moveBuffers moves the buffers of another strategy's value to a new value of this strategy.
// partitions has, for each partition of this strategy, the partition of the other strategy on the
// same device. The buffers on all other devices are closed.
func (s *TPUStrategy) moveBuffers(value *Mirrored, partitions []int) (*Mirrored, error) {
	base := value.base()
	old := base.takeBuffers() // the other strategy no longer releases them
	buffers := s.runtime.Buffers()
	for d, e := range partitions {
		buffers[d], old[e] = old[e], nil
	}
	v, err := s.newValue(false, base.dtype, base.shape, logical.Annotation{}, buffers)
	if err = errors.Join(err, old.Close()); err != nil {
		return nil, err
	}
	return v.(*Mirrored), nil
}
