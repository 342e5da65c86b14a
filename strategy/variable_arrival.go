package strategy

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// A program needs the shapes of a store's variables, a run needs their values. So a trace gives a
// variable its place, and its value arrives later: before the first run, or when somebody reads it.
// A program that is only compiled makes no values.

// arrive brings the values of the trace's variables to the devices, and gives the store's other
// variables their first values too, as GoMLX does.
func (t *trace) arrive(ctx context.Context) error {
	if t.vars != nil {
		if err := t.vars.initialize(ctx); err != nil {
			return fault.Of("initial values of "+t.f.opts.Name, err, "")
		}
	}
	return arrive(ctx, t.variables...)
}

// arrive brings the store's values of variables that wait for them to the devices. It is not called
// under the launch lock.
func arrive(ctx context.Context, variables ...*Variable) error {
	var made map[*Variables]bool
	for _, v := range variables {
		if v == nil {
			continue
		}
		vs := v.waiting.Load()
		if vs == nil {
			continue
		}
		if !made[vs] {
			if err := vs.initialize(ctx); err != nil {
				return fault.Of(fmt.Sprintf("initial value of variable %q", v.path), err, "")
			}
			if made == nil {
				made = map[*Variables]bool{}
			}
			made[vs] = true
			if err := vs.bringParts(ctx, variables); err != nil {
				return err
			}
		}
		if err := vs.bring(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// bring copies the store's value of a variable to the devices.
func (vs *Variables) bring(ctx context.Context, v *Variable) error {
	ctx, done, err := vs.exclusive(ctx)
	if err != nil {
		return fault.Of(fmt.Sprintf("variable %q: waiting for the store", v.path), err, "")
	}
	defer done()
	if v.waiting.Load() == nil {
		return nil // it came meanwhile
	}
	s := vs.strategy
	if err := s.check(); err != nil {
		return err
	}
	held, err := vs.held(v.path)
	if err != nil {
		return err
	}
	value, err := held.Value()
	if err != nil {
		return fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
	}
	if r := recipeOf(value); r != nil {
		err := vs.making(ctx, func(m *maker) error { return m.again(ctx, v, r) })
		if !errors.Is(err, errNotForDevices) {
			return err
		}
	}
	l, err := v.layout()
	if err != nil {
		return fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
	}
	fresh := make([]*pjrt.Buffer, len(s.devices))
	if err := s.upload(ctx, &l, func(_ int, use func([]byte)) error { return value.ConstBytes(use) }, fresh); err != nil {
		return fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
	}
	// Meanwhile somebody may have assigned a value, or closed the strategy.
	return v.take(fresh)
}

// bringParts brings those of some variables that wait for values of parts.
func (vs *Variables) bringParts(ctx context.Context, variables []*Variable) error {
	ctx, done, err := vs.exclusive(ctx)
	if err != nil {
		return fault.Of("waiting for the store", err, "")
	}
	defer done()
	s := vs.strategy
	if err := s.check(); err != nil {
		return err
	}
	var loads []*partLoad
	for _, v := range variables {
		if v == nil || v.waiting.Load() != vs {
			continue
		}
		held, err := vs.held(v.path)
		if err != nil {
			return err
		}
		if !held.HasValue() {
			continue
		}
		value, err := held.Value()
		if err != nil {
			return fault.Of(fmt.Sprintf("variable %q", v.path), err, "")
		}
		if p := partsOf(value); p != nil {
			load, err := s.partLoad(v, p)
			if err != nil {
				return err
			}
			loads = append(loads, load)
		}
	}
	if len(loads) == 0 {
		return nil
	}
	if _, err := s.uploadParts(ctx, loads); err != nil {
		return err
	}
	for _, x := range loads {
		err = errors.Join(err, x.variable.take(x.fresh))
	}
	return err
}
