package strategy

import (
	"context"
	"errors"
	"weak"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/mode"
)

// A strategy may read what another one has on the same devices: train on all cores, evaluate on
// one. The other strategy copies it, on its devices, and those copies that are on this one's are
// handed over. Nothing goes through the host.

// partitionsIn says, for each partition of this process, which partition of another strategy is on
// its device. It is false if one has none.
func (s *TPUStrategy) partitionsIn(other *TPUStrategy) ([]int, bool) {
	on := make(map[*pjrt.Device]int, len(other.machine.All))
	for e, device := range other.machine.All {
		on[device] = e
	}
	all := make([]int, len(s.machine.All))
	for d, device := range s.machine.All {
		e, ok := on[device]
		if !ok {
			return nil, false
		}
		all[d] = e
	}
	return all, len(all) > 0 // none ahead of time
}

// mixed returns the error of something of another strategy that cannot be used here.
func mixed(op, subject string) error { return &StrategyError{Op: op, Subject: subject} }

// borrow copies here what another strategy has: a variable, a value or a replica's part of one.
func (o operand) borrow(ctx context.Context, s *TPUStrategy, op string) (content, error) {
	other := o.strategy()
	from, ok := s.partitionsIn(other)
	if !ok {
		return content{}, mixed(op, o.String())
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
	theirs := base.strategy.drop(weak.Make(base)) // not theirs to release any more
	base.mu.Lock()
	base.closed = true
	base.mu.Unlock()
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

// borrowed are the values of other strategies' variables that a program reads, as they are now.
// release closes them.
func (p *program) borrow(ctx context.Context) (values []Value, release func(), err error) {
	s := p.function.strategy
	release = func() {
		for _, v := range values {
			_ = v.Close()
		}
	}
	for _, v := range p.borrowed {
		c, err := operandOf(v).borrow(ctx, s, "reading for "+p.function.opts.Name)
		if err != nil {
			release()
			return nil, nil, err
		}
		values = append(values, c.value)
	}
	return values, release, nil
}
