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

// content is an operand as a call works with it: a tensor of this process, or a value of the
// strategy on its devices.
type content struct {
	host  *tensors.Tensor
	value Value
	made  bool // the value is the call's to close
}

// made returns the content that is a value which the call closes.
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

// resolve brings an operand to the strategy. A variable gives its value, or its components where
// they may differ. A replica's part gives the replica's tensor, one for all replicas. What another
// strategy has gives its value across that strategy's replicas, if that strategy has all devices of
// this one.
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

// resolvePart is resolve of one replica's part.
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
	case base.ragged != nil || s.replicas == 1: // of its own shape
		t, err := o.value.Local(ctx, o.replica)
		return content{host: t}, err
	}
	return made(o.part(ctx, s))
}

// part copies one replica's part to all replicas.
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

// resolveOne is resolve of what is one value for all replicas. A value that may differ between the
// replicas is an error.
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

// resolveMirrored is resolveOne as a value on the devices.
func (o operand) resolveMirrored(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	c, err := o.resolveOne(ctx, s, op)
	if err != nil || c.value != nil {
		return c, err
	}
	return made(s.Mirror(ctx, c.host, logical.Annotation{}))
}

// resolveHost is resolveOne in this process's memory.
func (o operand) resolveHost(ctx context.Context, s *TPUStrategy, op string) (*tensors.Tensor, error) {
	c, err := o.resolveOne(ctx, s, op)
	if err != nil || c.value == nil {
		return c.host, err
	}
	host, err := c.value.(*Mirrored).toHost(ctx)
	return host, errors.Join(err, c.release())
}

// copyHost is tensor of what may be on the devices, too.
func (o operand) copyHost(ctx context.Context, s *TPUStrategy) (*tensors.Tensor, error) {
	if o.readable() {
		return o.resolveHost(ctx, s, "copy")
	}
	return o.tensor()
}

// resolveArgument makes a value of an indirect operand, for the caller to close.
func (o operand) resolveArgument(ctx context.Context, s *TPUStrategy, op string) (Value, error) {
	c, err := o.resolve(ctx, s, op)
	if err != nil || c.value != nil {
		return c.value, err
	}
	return asValue(s.Mirror(ctx, c.host, logical.Annotation{}))
}

// mirrorOperand is [TPUStrategy.Mirror] of what is on devices already.
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

// toHost copies a mirrored value to the host, of whichever process its parts are.
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

// A strategy may read what another one has on the same devices: train on all cores, evaluate on
// one. The other strategy copies it, on its devices, and those copies that are on this one's are
// handed over. Nothing goes through the host.

// borrow copies here what another strategy has: a variable, a value or a replica's part of one.
func (o operand) borrow(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	other := o.strategy()
	from, ok := partitionsIn(s.machine, other.machine)
	if !ok {
		return content{}, fault.OtherStrategy(op, o.String())
	}
	outer := mode.With(ctx, mode.Cross(other))
	c, err := o.resolveOne(outer, other, op)
	if err != nil || c.value == nil {
		return c, err
	}
	// A copy that is whole on each device, and nobody else's.
	whole, err := copyAs(outer, c.value, logical.Replicated())
	if err = errors.Join(err, c.release()); err != nil {
		return content{}, err
	}
	return made(s.adopt(whole, from))
}

// adopt makes a value of this strategy of those buffers of another's that are on its devices, and
// gives up the others.
func (s *TPUStrategy) adopt(whole *Mirrored, from []int) (*Mirrored, error) {
	base := whole.base()
	theirs := base.surrender() // not theirs to release any more
	mine := s.machine.Buffers()
	for d, e := range from {
		mine[d], theirs[e] = theirs[e], nil
	}
	v, err := s.newValue(false, base.dtype, base.shape, logical.Annotation{}, mine)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, err
	}
	return v.(*Mirrored), nil
}
