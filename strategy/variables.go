package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"golang.org/x/sync/semaphore"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/initialization"
)

// Variables are the variables of a store on the devices of a strategy. A variable is added when a
// step that uses it is traced. Its value is copied from the store when such a step first runs. The
// variables are mirrored. [Options].Variables defines how they are split over the logical devices.
// Variables is safe for concurrent use.
type Variables struct {
	strategy *TPUStrategy
	store    *model.Store

	// semaphore serializes traces, Pull and Push, because GoMLX's stores are not safe for
	// concurrent use.
	semaphore *semaphore.Weighted
	// placing serializes the addition of variables.
	placing sync.Mutex

	mu     sync.Mutex // guards the list and firsts; engine.Runtime.Launch guards the buffers
	list   []*Variable
	firsts initialization.Stats
	// proxied are the variables of NewVariable that training steps over the store train, by the
	// paths of their proxies.
	proxied map[string]*Variable
	paths   map[string]*model.Variable // see variablesByPath
	stacks  map[string]bool            // paths of the variables of loops over layers
}

// Variables returns the variables of a store. It always returns the same object for a store.
func (s *TPUStrategy) Variables(store *model.Store) *Variables {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.variables[store]
	if !ok {
		v = &Variables{strategy: s, store: store, semaphore: semaphore.NewWeighted(1)}
		if !s.closed.Load() {
			s.variables[store] = v
		}
	}
	return v
}

// lockKey is a context key. Its value records that the context has locked a store.
type lockKey struct{ variables *Variables }

// lock waits for exclusive use of the store, unless ctx has already locked the store. The returned
// unlock function unlocks it. op is a prefix for errors.
func (vs *Variables) lock(ctx context.Context, op string) (locked context.Context, unlock func(), err error) {
	if ctx.Value(lockKey{vs}) != nil {
		return ctx, func() {}, nil
	}
	if err := vs.semaphore.Acquire(ctx, 1); err != nil {
		return nil, nil, fault.Wrap(op+"waiting for the store", context.Cause(ctx), "")
	}
	return context.WithValue(ctx, lockKey{vs}, true), func() { vs.semaphore.Release(1) }, nil
}

// All returns the variables in the order of their first use. The strategy owns the variables.
func (vs *Variables) All() []*Variable {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return slices.Clone(vs.list)
}

// Lookup returns the variable at a path such as "/hidden/dense/weights", and whether it exists.
func (vs *Variables) Lookup(path string) (*Variable, bool) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	i := slices.IndexFunc(vs.list, func(v *Variable) bool { return v.path == path })
	if i < 0 {
		return nil, false
	}
	return vs.list[i], true
}

// findOrAddVariable returns the variable at a path. If there is none, it adds a variable without
// buffers.
func (vs *Variables) findOrAddVariable(path string) (*Variable, error) {
	vs.placing.Lock()
	defer vs.placing.Unlock()
	if v, ok := vs.Lookup(path); ok {
		return v, nil
	}
	source := vs.store.GetVariable(path)
	if source == nil {
		return nil, fault.New(errkind.ValueError, fmt.Sprintf("parameter %q", path), "pass it as an argument",
			"it is no variable of the step's store")
	}
	shape := source.Shape()
	v := &Variable{strategy: vs.strategy, path: path, dtype: shape.DType, shape: slices.Clone(shape.Dimensions),
		trainable: source.Trainable, synchronization: OnWrite}
	var rule int
	var err error
	if v.annotation, rule, v.replicaShard, err = vs.placement(source); err != nil {
		return nil, err
	}
	if err := v.annotation.ValidateOn(vs.strategy.axes, path, v.shape); err != nil {
		return nil, fault.Wrap(fmt.Sprintf("variable rule %d", rule), err, "")
	}
	if _, err := v.layout(); err != nil {
		return nil, err
	}
	v.pending.Store(vs)
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.list = append(vs.list, v)
	return v, nil
}

// Pull copies the variables' values to the store, before a checkpoint for example. It waits for the
// steps in progress. With several processes, all must call it at the same point. After an error
// some variables may have been copied.
func (vs *Variables) Pull(ctx context.Context) error {
	if err := RefuseTracing(ctx, "pull", fault.InsteadOfCopying); err != nil {
		return err
	}
	ctx, done, err := vs.lock(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	for _, v := range vs.All() {
		value, err := v.Value(ctx)
		if err != nil {
			return err
		}
		held, err := vs.storeVariable(v.path)
		if err != nil {
			return err
		}
		if err := held.SetValue(value); err != nil {
			return v.wrapError(err)
		}
	}
	return nil
}

// Push copies the store's values to the devices, after a checkpoint was loaded for example. All
// processes must call it, with the same values in their stores. After an error some variables may
// have been copied.
func (vs *Variables) Push(ctx context.Context) error {
	if err := RefuseTracing(ctx, "push", fault.InsteadOfCopying); err != nil {
		return err
	}
	ctx, done, err := vs.lock(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	for _, v := range vs.All() {
		if v.pending.Load() != nil {
			continue // the store's value is copied when the variable is first used
		}
		value, err := vs.storeValue(v)
		if err != nil {
			return err
		}
		if err := v.Assign(ctx, value); err != nil {
			return err
		}
	}
	return nil
}

// storeVariable returns the store's variable at a path. It returns an error if the variable was
// deleted.
func (vs *Variables) storeVariable(path string) (*model.Variable, error) {
	if v := vs.store.GetVariable(path); v != nil {
		return v, nil
	}
	return nil, fault.New(errkind.ValueError, fmt.Sprintf("variable %q", path),
		"delete a store's variables before its first step, or make a new store",
		"it is on the devices, but no longer in its store")
}

func (vs *Variables) storeValue(v *Variable) (*tensors.Tensor, error) {
	held, err := vs.storeVariable(v.path)
	if err != nil {
		return nil, err
	}
	value, err := held.Value()
	return value, v.wrapError(err)
}

func (vs *Variables) release() error {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	var errs []error
	for _, v := range vs.list {
		errs = append(errs, v.release())
	}
	return errors.Join(errs...)
}
