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

// content is a resolved operand: a tensor in this process, or a value of the strategy on its
// devices.
type content struct {
	host  *tensors.Tensor
	value Value
	made  bool // release closes the value
}

// made returns a temporary value, which release closes.
func made[T Value](v T, err error) (content, error) {
	if err != nil {
		return content{}, err
	}
	return content{value: v, made: true}, nil
}

func (c content) release() error {
	if c.made {
		return c.value.Close()
	}
	return nil
}

// resolve converts an operand to content of the strategy. A variable is converted to its value, or
// to its components if they may differ. A component is converted to a tensor that is the same on
// all replicas. An operand of another strategy is converted to its cross-replica value, if that
// strategy has all devices of this one.
func (o operand) resolve(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	switch of := o.strategy(); {
	case of == nil:
		host, err := o.host(op)
		return content{host: host}, err
	case of != s && o.whole() && o.value.base().varying():
		return content{}, ownedBy(s, o.value)
	case of != s:
		return o.borrow(ctx, s, op)
	case o.replica >= 0:
		return o.resolvePart(ctx, s, op)
	case o.value != nil:
		return content{value: o.value}, nil
	case s.slice != nil: // ahead of time there are no contents
		v := o.variable
		return made(s.newValue(v.perReplica(), v.dtype, v.shape, v.annotation, nil))
	}
	return made(o.variable.snapshot(ctx))
}

// resolvePart resolves the component of one replica.
func (o operand) resolvePart(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	if v := o.variable; v != nil {
		if v.perReplica() {
			return made(o.part(ctx, s))
		}
		return made(v.snapshot(ctx))
	}
	base := o.value.base()
	switch {
	case base.steps > 0:
		return content{}, fault.New(errkind.TypeError, op, "give the result of a step", "a part of a value of several steps")
	case !base.varying() && base.ragged == nil:
		return made(copyAs(ctx, o.value, base.annotation))
	case base.ragged != nil || s.replicas == 1: // the shape may differ from other replicas'
		t, err := o.value.Local(ctx, o.replica)
		return content{host: t}, err
	}
	return made(o.part(ctx, s))
}

// part copies the component of one replica to all replicas.
func (o operand) part(ctx context.Context, s *TPUStrategy) (*Mirrored, error) {
	replica, err := s.Mirror(ctx, int32(o.replica), logical.Annotation{})
	if err != nil {
		return nil, err
	}
	defer replica.Close()
	c := builtinCall{name: "part", values: []Value{replica}, mirrored: true}
	if v := o.variable; v != nil {
		c.variables, c.results = []*Variable{v}, one(v.annotation)
		c.step = func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.of(in[0], rc.Read(v))}
		}
	} else {
		c.values, c.results = append(c.values, o.value), one(o.value.Annotation())
		c.step = func(rc *ReplicaContext, in []*graph.Node) []*graph.Node { return []*graph.Node{rc.of(in[0], in[1])} }
	}
	return c.one(ctx, s)
}

// resolveOne resolves an operand to one value for all replicas. A replica-varying value is an
// error.
func (o operand) resolveOne(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	if v := o.variable; v != nil && v.strategy == s && o.replica < 0 && v.perReplica() {
		return made(v.readAll(mode.With(ctx, mode.Cross(s))))
	}
	c, err := o.resolve(ctx, s, op)
	if err != nil || c.value == nil {
		return c, err
	}
	base := c.value.base()
	switch {
	case base.steps > 0:
		err = fault.New(errkind.TypeError, op, "give the result of a step", "a value of several steps")
	case base.varying() && s.replicas > 1:
		err = fault.New(errkind.TypeError, op, "reduce it first", "a PerReplica value where one for all replicas is expected")
	case base.perReplica:
		var m *Mirrored
		if m, err = copyAs(ctx, c.value, base.annotation); err == nil {
			err = c.release()
			c = content{value: m, made: true}
		}
	}
	if err != nil {
		return content{}, errors.Join(err, c.release())
	}
	return c, nil
}

// resolveMirrored resolves an operand to a mirrored value on the devices.
func (o operand) resolveMirrored(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	c, err := o.resolveOne(ctx, s, op)
	if err != nil || c.value != nil {
		return c, err
	}
	return made(s.Mirror(ctx, c.host, logical.Annotation{}))
}

// resolveHost resolves an operand to a tensor in this process.
func (o operand) resolveHost(ctx context.Context, s *TPUStrategy, op string) (*tensors.Tensor, error) {
	c, err := o.resolveOne(ctx, s, op)
	if err != nil || c.value == nil {
		return c.host, err
	}
	host, err := c.value.(*Mirrored).toHost(ctx)
	return host, errors.Join(err, c.release())
}

// copyHost returns a host tensor for an operand in host or device memory.
func (o operand) copyHost(ctx context.Context, s *TPUStrategy) (*tensors.Tensor, error) {
	if o.readable() {
		return o.resolveHost(ctx, s, "copy")
	}
	return o.tensor()
}

// resolveArgument converts an indirect operand to a value, which the caller closes.
func (o operand) resolveArgument(ctx context.Context, s *TPUStrategy, op string) (Value, error) {
	c, err := o.resolve(ctx, s, op)
	if err != nil || c.value != nil {
		return c.value, err
	}
	return asValue(s.Mirror(ctx, c.host, logical.Annotation{}))
}

// mirror implements [TPUStrategy.Mirror] for an operand on the devices.
func (o operand) mirror(ctx context.Context, s *TPUStrategy, a logical.Annotation) (*Mirrored, error) {
	if o.whole() && o.strategy() == s && o.value.base().varying() && s.replicas > 1 {
		return nil, fault.New(errkind.ValueError, "mirror", "reduce it first, or take one replica's part", "%s, which has a value for each replica", o)
	}
	c, err := o.resolveOne(ctx, s, "mirror")
	if err != nil {
		return nil, err
	}
	if c.value == nil {
		return s.Mirror(ctx, c.host, a)
	}
	m, err := copyAs(ctx, c.value, a)
	return m, errors.Join(err, c.release())
}

// toHost copies a mirrored value to the host, even if its shards are in several processes.
func (m *Mirrored) toHost(ctx context.Context) (*tensors.Tensor, error) {
	if m.strategy.everywhere(false, m.annotation) {
		return m.Value(ctx)
	}
	whole, err := copyAs(ctx, m, logical.Replicated())
	if err != nil {
		return nil, err
	}
	defer whole.Close()
	return whole.Value(ctx)
}

// A strategy may read values of another strategy with the same devices, for example to train on all
// cores and evaluate on one. The other strategy copies the value on its devices, and this strategy
// takes over the copies on common devices. The data does not pass through the host.

// borrow copies an operand of another strategy to this one: a variable, a value or a component.
func (o operand) borrow(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	other := o.strategy()
	from, ok := partitionsIn(s.runtime, other.runtime)
	if !ok {
		return content{}, fault.OtherStrategy(op, o.String())
	}
	outer := mode.With(ctx, mode.Cross(other))
	c, err := o.resolveOne(outer, other, op)
	if err != nil || c.value == nil {
		return c, err
	}
	// The copy is replicated on each device and has no other owner.
	whole, err := copyAs(outer, c.value, logical.Replicated())
	if err = errors.Join(err, c.release()); err != nil {
		return content{}, err
	}
	return made(s.adopt(whole, from))
}

// adopt creates a value of this strategy from the buffers of another strategy's value that are on
// its devices, and closes the other buffers.
func (s *TPUStrategy) adopt(whole *Mirrored, from []int) (*Mirrored, error) {
	base := whole.base()
	theirs := base.surrender() // the other strategy no longer releases them
	mine := s.runtime.Buffers()
	for d, e := range from {
		mine[d], theirs[e] = theirs[e], nil
	}
	v, err := s.newValue(false, base.dtype, base.shape, logical.Annotation{}, mine)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, err
	}
	return v.(*Mirrored), nil
}
