package strategy

import (
	"context"
	"errors"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/first"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
)

// A program needs the shapes of a store's variables; a run also needs their values. A trace
// therefore only defines the layout of a variable. The value is copied later: before the first run,
// or when the variable is first read. A program that is only compiled needs no values.

// arrive copies the store's values to the devices, for variables without buffers. The caller must
// not hold the launch lock.
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
		if vs == nil { // already copied, perhaps with a previous variable
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

// bring copies the store's values of those variables that wait for a value of vs. Values in parts
// are loaded together.
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
		if v == nil || v.waiting.Load() != vs { // another goroutine may have copied it
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

// bringOne copies a value to a variable's devices. An initial value of other devices is recomputed.
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
	// In the meantime a value may have been assigned, or the strategy closed.
	return v.take(fresh)
}

// copied copies a value to the devices of all components, in new buffers.
func (v *Variable) copied(ctx context.Context, value *tensors.Tensor) (engine.Buffers, error) {
	if p := lazy.PartsOf(value); p != nil {
		load, err := v.load(p)
		if err != nil {
			return nil, err
		}
		_, err = v.strategy.runtime.Fill(ctx, []*engine.Load{load}, 1)
		return load.Into, err
	}
	l, err := v.layout()
	if err != nil {
		return nil, err
	}
	fresh := v.strategy.runtime.Buffers()
	err = v.strategy.putTensor(ctx, l, value, func(_ int, data []byte) []byte { return data }, fresh)
	return fresh, v.failed(err)
}

// initialize computes the initial values of the store's variables without a value here or in the
// store.
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

// firstOptions returns the options for computing initial values of the store's variables.
func (vs *Variables) firstOptions() first.Options {
	s := vs.strategy
	return first.Options{Machine: s.runtime, Axes: s.opts.LogicalAxes, Target: s.target, Precision: s.opts.Precision, Store: vs.store,
		Place: func(path string) (first.Variable, error) {
			v, err := vs.variable(path)
			if err != nil {
				return first.Variable{}, err
			}
			return v.first()
		}}
}

// first describes the variable for the computation of its initial value.
func (v *Variable) first() (first.Variable, error) {
	l, err := v.layout()
	return first.Variable{Path: v.path, Shape: v.Shape(), Annotation: v.annotation, Over: v.over, Layout: l, Take: v.take}, err
}

// FirstValues has statistics about the initialization of a store's variables. Variables that
// already had a value, from a checkpoint for example, are not counted.
type FirstValues struct {
	// OnDevices is the number of variables that were initialized on the devices, which are the
	// large ones. OnHost is the number of variables that were initialized on the host.
	OnDevices, OnHost int
	// Programs is the number of compiled programs. Variables with the same shape, split and
	// initializer share a program.
	Programs int
	// Lowering is the time for tracing and lowering the programs, Compiling the time for compiling
	// them, and Making the remaining time.
	Lowering, Compiling, Making time.Duration
}

// FirstValues returns the statistics of the initialization so far.
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

// take sets the first buffers of a variable, and closes them if the variable already has buffers.
func (v *Variable) take(fresh engine.Buffers) error {
	v.strategy.runtime.Launch.Lock()
	defer v.strategy.runtime.Launch.Unlock()
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

// fill loads the values of variables from parts, with the given number of concurrent readers; see
// [engine.Runtime.Fill]. Either all variables are changed or none. The new values are loaded in
// addition to the old ones. Then check is called, if it is not nil, and without an error the new
// values replace the old ones. A variable that received its first value in the meantime keeps that
// value. staged is the peak host memory, in bytes.
func (s *TPUStrategy) fill(ctx context.Context, variables []*Variable, from []lazy.Parts, readers int, check func(context.Context) error) (staged int, err error) {
	loads, waited := make([]*engine.Load, len(variables)), make([]bool, len(variables))
	for i, v := range variables {
		if loads[i], err = v.load(from[i]); err != nil {
			return 0, err
		}
		waited[i] = v.waiting.Load() != nil
	}
	if staged, err = s.runtime.Fill(ctx, loads, readers); err != nil {
		return staged, err
	}
	if check != nil {
		err = check(ctx)
	}
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
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
