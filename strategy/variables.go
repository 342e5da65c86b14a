package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"tpustrategy/logical"
	"tpustrategy/pjrt"
)

// Variables are the variables of a store on the devices of a strategy. A variable
// arrives there, with the store's value, when a step that uses it is first
// traced, and is mirrored: the same on every replica, split over the logical
// devices by [Options.Variables]. Steps update it in place. It is safe for
// concurrent use.
type Variables struct {
	strategy *TPUStrategy
	store    *model.Store

	mu        sync.Mutex // guards the list; buffers are guarded by strategy.launch
	list      []*Variable
	rulesUsed []bool
}

// Variable is one mirrored variable. Its methods are safe for concurrent use.
type Variable struct {
	strategy   *TPUStrategy
	path       string
	dtype      dtypes.DType
	shape      []int
	annotation logical.Annotation
	shardBytes int
	trainable  bool
	buffers    []*pjrt.Buffer
}

// Variables returns the variables of a store. The same store gives the same
// object.
func (s *TPUStrategy) Variables(store *model.Store) *Variables {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.variables[store]
	if !ok {
		v = &Variables{strategy: s, store: store, rulesUsed: make([]bool, len(s.opts.Variables))}
		if !s.closed {
			s.variables[store] = v
		}
	}
	return v
}

// All returns the variables in the order of their arrival.
func (vs *Variables) All() []*Variable {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return slices.Clone(vs.list)
}

// Lookup returns the variable of a path, such as "/hidden/dense/weights".
func (vs *Variables) Lookup(path string) (*Variable, bool) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	i := slices.IndexFunc(vs.list, func(v *Variable) bool { return v.path == path })
	if i < 0 {
		return nil, false
	}
	return vs.list[i], true
}

// place returns the variable of a path, copying it to the devices if it is new.
func (vs *Variables) place(ctx context.Context, path string) (*Variable, error) {
	if v, ok := vs.Lookup(path); ok {
		return v, nil
	}
	source := vs.store.GetVariable(path)
	if source == nil {
		return nil, fmt.Errorf("strategy: the step has a parameter %q that is no variable of its store; pass it as an argument", path)
	}
	value, err := source.Value()
	if err != nil {
		return nil, fmt.Errorf("strategy: variable %q: %w", path, err)
	}
	v := &Variable{strategy: vs.strategy, path: path, dtype: value.DType(), shape: slices.Clone(value.Shape().Dimensions), trainable: source.Trainable}
	var rule int
	v.annotation, rule = vs.strategy.opts.Variables.For(path, len(v.shape))
	if err := v.annotation.Validate(path, v.shape, vs.strategy.perReplica); err != nil {
		return nil, fmt.Errorf("strategy: variable rule %d: %w", rule, err)
	}
	v.buffers = make([]*pjrt.Buffer, len(vs.strategy.devices))
	if err := v.upload(ctx, value); err != nil {
		return nil, err
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.list = append(vs.list, v)
	if rule >= 0 {
		vs.rulesUsed[rule] = true
	}
	return v, nil
}

// unusedRule reports a rule that no variable matched: a sharding that was asked
// for and would be dropped.
func (vs *Variables) unusedRule() error {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	var errs []error
	for i, used := range vs.rulesUsed {
		if !used {
			rule := vs.strategy.opts.Variables[i]
			errs = append(errs, &OptionError{Option: "Variables", Reason: fmt.Sprintf(
				"rule %d (%q to %s) matches no variable of the step", i, rule.Pattern, rule.Annotation)})
		}
	}
	return errors.Join(errs...)
}

// Pull copies the variables' values back to the store, for a checkpoint say. It
// waits for the steps under way.
func (vs *Variables) Pull(ctx context.Context) error {
	for _, v := range vs.All() {
		value, err := v.Value(ctx)
		if err != nil {
			return err
		}
		if err := vs.store.GetVariable(v.path).SetValue(value); err != nil {
			return fmt.Errorf("strategy: variable %q: %w", v.path, err)
		}
	}
	return nil
}

// Push copies the store's values to the devices, after a checkpoint was loaded
// say.
func (vs *Variables) Push(ctx context.Context) error {
	for _, v := range vs.All() {
		value, err := vs.store.GetVariable(v.path).Value()
		if err != nil {
			return fmt.Errorf("strategy: variable %q: %w", v.path, err)
		}
		if err := v.Assign(ctx, value); err != nil {
			return err
		}
	}
	return nil
}

func (vs *Variables) free() error {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	var errs []error
	for _, v := range vs.list {
		for _, b := range v.buffers {
			errs = append(errs, b.Close())
		}
	}
	return errors.Join(errs...)
}

// Path returns the variable's path in its store.
func (v *Variable) Path() string { return v.path }

// Shape returns the dtype and the dimensions of the whole variable.
func (v *Variable) Shape() shapes.Shape { return shapes.Make(v.dtype, v.shape...) }

// Annotation returns how the variable is split over the logical devices.
func (v *Variable) Annotation() logical.Annotation { return v.annotation }

// Trainable reports whether optimizers change the variable.
func (v *Variable) Trainable() bool { return v.trainable }

// BytesPerDevice returns the bytes that each device holds of it.
func (v *Variable) BytesPerDevice() int { return v.shardBytes }

// Value copies the variable to the host, from replica 0. It waits for the steps
// under way.
func (v *Variable) Value(ctx context.Context) (*tensors.Tensor, error) { return v.Local(ctx, 0) }

// Local copies one replica's copy of the variable to the host.
func (v *Variable) Local(ctx context.Context, replica int) (*tensors.Tensor, error) {
	s := v.strategy
	if replica < 0 || replica >= s.replicas {
		return nil, fmt.Errorf("strategy: variable %q: replica %d of %d", v.path, replica, s.replicas)
	}
	// A step that is launched now would donate the buffers that are read.
	s.launch.Lock()
	defer s.launch.Unlock()
	if err := s.check(); err != nil {
		return nil, err
	}
	value, err := s.download(ctx, &distributed{strategy: s, dtype: v.dtype, shape: v.shape, annotation: v.annotation}, v.buffers, replica)
	if err != nil {
		return nil, fmt.Errorf("strategy: variable %q: %w", v.path, err)
	}
	return value, nil
}

// Assign gives the variable a new value on every replica, of its own shape and
// dtype.
func (v *Variable) Assign(ctx context.Context, value *tensors.Tensor) error {
	if !value.Shape().Equal(v.Shape()) {
		return fmt.Errorf("strategy: variable %q of shape %s cannot take a value of shape %s", v.path, v.Shape(), value.Shape())
	}
	s := v.strategy
	s.launch.Lock()
	defer s.launch.Unlock()
	if err := s.check(); err != nil {
		return err
	}
	fresh := &Variable{strategy: s, path: v.path, dtype: v.dtype, shape: v.shape, annotation: v.annotation,
		buffers: make([]*pjrt.Buffer, len(v.buffers))}
	if err := fresh.upload(ctx, value); err != nil {
		return err
	}
	var errs []error
	for d, b := range v.buffers {
		errs = append(errs, b.Close())
		v.buffers[d] = fresh.buffers[d]
	}
	s.generation++
	return errors.Join(errs...)
}

func (v *Variable) upload(ctx context.Context, value *tensors.Tensor) error {
	l, err := v.strategy.layout(v.dtype, v.shape, v.annotation, false)
	if err != nil {
		return fmt.Errorf("strategy: variable %q: %w", v.path, err)
	}
	v.shardBytes = l.shardBytes
	err = v.strategy.upload(ctx, &l, func(_ int, use func([]byte)) error { return value.ConstBytes(use) }, v.buffers)
	if err != nil {
		return fmt.Errorf("strategy: variable %q: %w", v.path, err)
	}
	return nil
}

// Ready waits until the steps under way have computed the variable everywhere.
func (v *Variable) Ready(ctx context.Context) error {
	v.strategy.launch.Lock()
	defer v.strategy.launch.Unlock()
	for _, b := range v.buffers {
		if err := b.Ready(ctx); err != nil {
			return fmt.Errorf("strategy: variable %q: %w", v.path, err)
		}
	}
	return nil
}
