package strategy

import (
	"context"
	"errors"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/initialization"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazytensor"
)

// A program needs the shapes of a store's variables; a run also needs their values. A trace
// therefore only defines the layout of a variable. The value is copied later: before the first run,
// or when the variable is first read. A program that is only compiled needs no values.

// initVariables copies initial values to the devices for all variables that have no buffers yet.
// The caller must not hold the launch lock.
func initVariables(ctx context.Context, variables ...*Variable) error {
	for _, v := range variables {
		if v == nil {
			continue
		}
		if value := v.constant.Load(); value != nil {
			if err := v.uploadConstant(ctx, value); err != nil {
				return err
			}
			continue
		}
		vs := v.pending.Load()
		if vs == nil { // already copied, perhaps with a previous variable
			continue
		}
		if err := v.strategy.checkRunnable("reading", v.path); err != nil {
			return err
		}
		if err := vs.initStore(ctx); err != nil {
			return fault.Wrap("initial value of "+v.subject(), err, "")
		}
		if err := vs.initVariables(ctx, variables); err != nil {
			return err
		}
	}
	return nil
}

// initVariables copies the initial values of the given store variables to the devices. Values that
// are stored in several parts are loaded together.
func (vs *Variables) initVariables(ctx context.Context, variables []*Variable) error {
	ctx, done, err := vs.lock(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	if err := vs.strategy.checkOpen(); err != nil {
		return err
	}
	var waiting []*Variable
	var parts []lazytensor.Reader
	for _, v := range variables {
		if v == nil || v.pending.Load() != vs { // another goroutine may have copied it
			continue
		}
		value, err := vs.storeValue(v)
		if err != nil {
			return err
		}
		if p := lazytensor.ReaderOf(value); p != nil {
			waiting, parts = append(waiting, v), append(parts, p)
		} else if err := vs.initVariable(ctx, v, value); err != nil {
			return err
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	_, err = vs.strategy.loadValues(ctx, waiting, parts, 1, nil)
	return err
}

// initVariable copies an initial value to the variable's devices. If the value was computed on the
// devices of another strategy, initVariable computes it again on the devices of this strategy.
func (vs *Variables) initVariable(ctx context.Context, v *Variable, value *tensors.Tensor) error {
	if of := initialization.ValueOf(value); of != nil {
		placed, err := v.initialVariable()
		if err != nil {
			return err
		}
		took, err := initialization.Repeat(ctx, vs.initialOptions(), placed, of)
		vs.addFirstValues(took)
		if !errors.Is(err, initialization.ErrNotForDevices) {
			return err
		}
	}
	fresh, err := v.uploadValue(ctx, value)
	if err != nil {
		return err
	}
	// In the meantime a value may have been assigned, or the strategy closed.
	return v.setInitialBuffers(fresh)
}

// uploadValue copies a value to new buffers on the devices of all components.
func (v *Variable) uploadValue(ctx context.Context, value *tensors.Tensor) (engine.Buffers, error) {
	if p := lazytensor.ReaderOf(value); p != nil {
		load, err := v.newLoad(p)
		if err != nil {
			return nil, err
		}
		_, err = v.strategy.runtime.LoadTensors(ctx, []*engine.Load{load}, 1)
		return load.Into, err
	}
	l, err := v.layout()
	if err != nil {
		return nil, err
	}
	fresh := v.strategy.runtime.Buffers()
	err = v.strategy.putTensor(ctx, l, value, func(_ int, data []byte) []byte { return data }, fresh)
	return fresh, v.wrapError(err)
}

// initStore computes an initial value for each variable of the store that has no value yet.
func (vs *Variables) initStore(ctx context.Context) error {
	ctx, done, err := vs.lock(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	var missing []*model.Variable
	for v := range vs.store.IterVariables() {
		if placed, ok := vs.Lookup(v.Path()); !v.HasValue() && (!ok || placed.pending.Load() != nil) {
			missing = append(missing, v)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	took, err := initialization.Run(ctx, vs.initialOptions(), missing)
	vs.addFirstValues(took)
	return err
}

// initialOptions returns the options with which the initial values of the store's variables are
// computed.
func (vs *Variables) initialOptions() initialization.Options {
	s := vs.strategy
	return initialization.Options{Runtime: s.runtime, Axes: s.opts.LogicalAxes, Target: s.target,
		Precision: s.opts.Precision, Store: vs.store,
		Place: func(path string) (initialization.Variable, error) {
			v, err := vs.findOrAddVariable(path)
			if err != nil {
				return initialization.Variable{}, err
			}
			return v.initialVariable()
		}}
}

// initialVariable returns the shape and the layout in which the variable's initial value is
// computed.
func (v *Variable) initialVariable() (initialization.Variable, error) {
	l, err := v.layout()
	return initialization.Variable{Path: v.path, Shape: v.Shape(), Annotation: v.annotation, Over: v.replicaShard,
		Layout:     l,
		SetBuffers: v.setInitialBuffers}, err
}

// FirstValues has statistics about how the initial values of variables were computed.
type FirstValues struct {
	// OnDevices and OnHost are the numbers of variables whose values were computed on the devices,
	// which are the large ones, and on the host. Variables with values, from a checkpoint for
	// example, are not counted.
	OnDevices, OnHost int
	// Programs is the number of compiled programs. Variables with the same shape, split and
	// initializer share a program.
	Programs int
	// Lowering and Compiling are the times for the programs, and Making is the remaining time.
	Lowering, Compiling, Making time.Duration
}

func (vs *Variables) FirstValues() FirstValues {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return FirstValues(vs.firsts)
}

func (vs *Variables) addFirstValues(figures initialization.Stats) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.firsts.Add(figures)
}

// setInitialBuffers sets the first buffers of a variable. If the variable already has buffers, it
// closes the buffers fresh instead.
func (v *Variable) setInitialBuffers(fresh engine.Buffers) error {
	v.strategy.runtime.Launch.Lock()
	defer v.strategy.runtime.Launch.Unlock()
	if err := v.checkOpen(); err != nil {
		return errors.Join(err, fresh.Close())
	}
	if v.buffers != nil {
		return fresh.Close()
	}
	v.buffers = fresh
	v.pending.Store(nil)
	return nil
}

// loadValues implements [internalStrategy.LoadVariables]. If a variable receives its first value
// during the call, it keeps that value.
func (s *TPUStrategy) loadValues(ctx context.Context, variables []*Variable, src []lazytensor.Reader, readers int,
	check func(context.Context) error) (staged int, err error) {
	loads, waited := make([]*engine.Load, len(variables)), make([]bool, len(variables))
	for i, v := range variables {
		if loads[i], err = v.newLoad(src[i]); err != nil {
			return 0, err
		}
		waited[i] = v.pending.Load() != nil
	}
	if staged, err = s.runtime.LoadTensors(ctx, loads, readers); err != nil {
		return staged, err
	}
	if check != nil {
		err = check(ctx)
	}
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	for i := 0; i < len(variables) && err == nil; i++ {
		err = variables[i].checkOpen()
	}
	if err != nil {
		for _, x := range loads {
			_ = x.Into.Close()
		}
		return staged, err
	}
	var errs []error
	for i, v := range variables {
		if waited[i] && v.pending.Load() == nil {
			errs = append(errs, loads[i].Into.Close())
		} else {
			errs = append(errs, v.replaceBuffers(loads[i].Into))
		}
	}
	return staged, errors.Join(errs...)
}
