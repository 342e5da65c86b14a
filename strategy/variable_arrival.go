package strategy

import (
	"context"
	"errors"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/first"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
)

// A program needs the shapes of a store's variables, a run needs their values. So a trace gives a
// variable its place, and its value arrives later: before the first run, or when somebody reads it.
// A program that is only compiled makes no values.

// arrive brings the store's values of variables that wait for them to the devices. It is not called
// under the launch lock.
func arrive(ctx context.Context, variables ...*Variable) error {
	for _, v := range variables {
		if v == nil {
			continue
		}
		if value := v.constant.Load(); value != nil {
			if err := v.upload(ctx, value); err != nil {
				return err
			}
			continue
		}
		vs := v.waiting.Load()
		if vs == nil { // or it came with one before it
			continue
		}
		if err := v.strategy.runnable("reading", v.path); err != nil {
			return err
		}
		if err := vs.initialize(ctx); err != nil {
			return fault.Of("initial value of "+v.subject(), err, "")
		}
		if err := vs.bring(ctx, variables); err != nil {
			return err
		}
	}
	return nil
}

// bring brings the store's values of those of some variables that wait for them: values of parts
// together.
func (vs *Variables) bring(ctx context.Context, variables []*Variable) error {
	ctx, done, err := vs.exclusive(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	if err := vs.strategy.check(); err != nil {
		return err
	}
	var waiting []*Variable
	var parts []lazy.Parts
	for _, v := range variables {
		if v == nil || v.waiting.Load() != vs { // or it came meanwhile
			continue
		}
		value, err := vs.valueOf(v)
		if err != nil {
			return err
		}
		if p := lazy.PartsOf(value); p != nil {
			waiting, parts = append(waiting, v), append(parts, p)
		} else if err := vs.bringOne(ctx, v, value); err != nil {
			return err
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	_, err = vs.strategy.fill(ctx, waiting, parts, 1, nil)
	return err
}

// bringOne copies a value to a variable's devices, or makes it there if other devices have made it.
func (vs *Variables) bringOne(ctx context.Context, v *Variable, value *tensors.Tensor) error {
	if of := first.ValueOf(value); of != nil {
		placed, err := v.first()
		if err != nil {
			return err
		}
		took, err := first.Repeat(ctx, vs.firstOptions(), placed, of)
		vs.addFirst(took)
		if !errors.Is(err, first.ErrNotForDevices) {
			return err
		}
	}
	fresh, err := v.copied(ctx, value)
	if err != nil {
		return err
	}
	// Meanwhile somebody may have assigned a value, or closed the strategy.
	return v.take(fresh)
}

// copied copies a value to all components' devices, into new buffers.
func (v *Variable) copied(ctx context.Context, value *tensors.Tensor) (mesh.Buffers, error) {
	if p := lazy.PartsOf(value); p != nil {
		load, err := v.load(p)
		if err != nil {
			return nil, err
		}
		_, err = v.strategy.machine.Fill(ctx, []*mesh.Load{load}, 1)
		return load.Into, err
	}
	l, err := v.layout()
	if err != nil {
		return nil, err
	}
	fresh := v.strategy.machine.Buffers()
	err = v.strategy.putTensor(ctx, l, value, func(_ int, data []byte) []byte { return data }, fresh)
	return fresh, v.failed(err)
}

// initialize makes the first values of the store's variables that have none, here or in the store.
func (vs *Variables) initialize(ctx context.Context) error {
	ctx, done, err := vs.exclusive(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	var missing []*model.Variable
	for v := range vs.store.IterVariables() {
		if placed, ok := vs.Lookup(v.Path()); !v.HasValue() && (!ok || placed.waiting.Load() != nil) {
			missing = append(missing, v)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	took, err := first.Make(ctx, vs.firstOptions(), missing)
	vs.addFirst(took)
	return err
}

// firstOptions say how first values of the store's variables are made.
func (vs *Variables) firstOptions() first.Options {
	s := vs.strategy
	return first.Options{Machine: s.machine, Axes: s.opts.LogicalAxes, Target: s.target, Precision: s.opts.Precision, Store: vs.store,
		Place: func(path string) (first.Variable, error) {
			v, err := vs.variable(path)
			if err != nil {
				return first.Variable{}, err
			}
			return v.first()
		}}
}

// first is the variable as what makes its first value sees it.
func (v *Variable) first() (first.Variable, error) {
	l, err := v.layout()
	return first.Variable{Path: v.path, Shape: v.Shape(), Annotation: v.annotation, Over: v.over, Layout: l, Take: v.take}, err
}

// FirstValues describes the making of the first values of a store's variables. Variables that had a
// value before, from a checkpoint for example, do not count.
type FirstValues struct {
	// OnDevices is the number of variables that were made on the devices, the large ones, and
	// OnHost the number of those that were made on the host.
	OnDevices, OnHost int
	// Programs is the number of programs that were compiled: one for all variables of one shape,
	// split and initializer.
	Programs int
	// Lowering is the time of tracing and lowering the programs, Compiling that of compiling them,
	// Making the rest.
	Lowering, Compiling, Making time.Duration
}

// FirstValues returns what making first values took so far.
func (vs *Variables) FirstValues() FirstValues {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return FirstValues(vs.firsts)
}

func (vs *Variables) addFirst(took first.Figures) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.firsts.Add(took)
}

// take gives a variable its first buffers, unless it got others meanwhile.
func (v *Variable) take(fresh mesh.Buffers) error {
	v.strategy.machine.Launch.Lock()
	defer v.strategy.machine.Launch.Unlock()
	if err := v.live(); err != nil {
		return errors.Join(err, fresh.Close())
	}
	if v.buffers != nil {
		return fresh.Close()
	}
	v.buffers = fresh
	v.waiting.Store(nil)
	return nil
}

// fill gives variables values in parts, all or none of them, so many parts at a time; see
// [mesh.Machine.Fill]. The values come to the devices beside those that the variables have. Then
// check is called, if it is not nil, and if it returns no error the values take the places of the
// old ones. A variable that got its first value meanwhile keeps that. staged is the most that the
// host held on the way.
func (s *TPUStrategy) fill(ctx context.Context, variables []*Variable, from []lazy.Parts, readers int, check func(context.Context) error) (staged int, err error) {
	loads, waited := make([]*mesh.Load, len(variables)), make([]bool, len(variables))
	for i, v := range variables {
		if loads[i], err = v.load(from[i]); err != nil {
			return 0, err
		}
		waited[i] = v.waiting.Load() != nil
	}
	if staged, err = s.machine.Fill(ctx, loads, readers); err != nil {
		return staged, err
	}
	if check != nil {
		err = check(ctx)
	}
	s.machine.Launch.Lock()
	defer s.machine.Launch.Unlock()
	for i := 0; i < len(variables) && err == nil; i++ {
		err = variables[i].live()
	}
	if err != nil {
		for _, x := range loads {
			_ = x.Into.Close()
		}
		return staged, err
	}
	var errs []error
	for i, v := range variables {
		if waited[i] && v.waiting.Load() == nil {
			errs = append(errs, loads[i].Into.Close())
		} else {
			errs = append(errs, v.swap(loads[i].Into))
		}
	}
	return staged, errors.Join(errs...)
}
