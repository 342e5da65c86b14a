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
	"github.com/tpustrategy/tpustrategy/internal/engine/first"
)

// Variables are the variables of a store on the devices of a strategy. A variable is known when a
// step that uses it is first traced, and arrives on the devices, with the store's value, when such
// a step first runs. Each is mirrored, that is the same on every replica, and split over the
// logical devices by [Options.Variables]. Steps update the variables in place. Variables is safe
// for concurrent use.
type Variables struct {
	strategy *TPUStrategy
	store    *model.Store

	// turn is for one at a time: GoMLX's stores are not safe for concurrent use, so traces, which make
	// variables there, take turns with Pull and Push.
	turn *semaphore.Weighted
	// placing keeps a variable from being put on the devices twice.
	placing sync.Mutex

	mu     sync.Mutex // guards the list and firsts; buffers are guarded by strategy.launch
	list   []*Variable
	firsts first.Figures
	// trained are the variables of the scope that training steps over the store train, by the paths
	// of their proxies.
	trained map[string]*Variable
	paths   map[string]*model.Variable // see byPath
	stacks  map[string]bool            // the paths of the variables of loops over layers
}

// Variables returns the variables of a store. The same store gives the same object.
func (s *TPUStrategy) Variables(store *model.Store) *Variables {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.variables[store]
	if !ok {
		v = &Variables{strategy: s, store: store, turn: semaphore.NewWeighted(1)}
		if !s.closed.Load() {
			s.variables[store] = v
		}
	}
	return v
}

// turnKey marks the context of code that has the turn of a store.
type turnKey struct{ of *Variables }

// exclusive waits for the turn to use the store, unless ctx has it already. done gives it back. An
// error says what waits: doing is "", or ends in a colon and a space.
func (vs *Variables) exclusive(ctx context.Context, doing string) (held context.Context, done func(), err error) {
	if ctx.Value(turnKey{vs}) != nil {
		return ctx, func() {}, nil
	}
	if err := vs.turn.Acquire(ctx, 1); err != nil {
		return nil, nil, fault.Of(doing+"waiting for the store", context.Cause(ctx), "")
	}
	return context.WithValue(ctx, turnKey{vs}, true), func() { vs.turn.Release(1) }, nil
}

// All returns the variables in the order in which steps came to use them. The slice is the
// caller's, the variables stay the strategy's. It is empty before the first step that uses the
// store was traced.
func (vs *Variables) All() []*Variable {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return slices.Clone(vs.list)
}

// Lookup returns the variable with a path, such as "/hidden/dense/weights", and whether there is
// one.
func (vs *Variables) Lookup(path string) (*Variable, bool) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	i := slices.IndexFunc(vs.list, func(v *Variable) bool { return v.path == path })
	if i < 0 {
		return nil, false
	}
	return vs.list[i], true
}

// variable returns the variable of a path, which has its place on the devices from now on, and a
// value there when it arrives.
func (vs *Variables) variable(path string) (*Variable, error) {
	vs.placing.Lock()
	defer vs.placing.Unlock()
	if v, ok := vs.Lookup(path); ok {
		return v, nil
	}
	source := vs.store.GetVariable(path)
	if source == nil {
		return nil, fault.New(errkind.ValueError, fmt.Sprintf("parameter %q", path), "pass it as an argument", "it is no variable of the step's store")
	}
	shape := source.Shape()
	v := &Variable{strategy: vs.strategy, path: path, dtype: shape.DType, shape: slices.Clone(shape.Dimensions),
		trainable: source.Trainable, synchronization: OnWrite}
	var rule int
	var err error
	if v.annotation, rule, v.over, err = vs.placeOf(source); err != nil {
		return nil, err
	}
	if err := v.annotation.ValidateOn(vs.strategy.axes, path, v.shape); err != nil {
		return nil, fault.Of(fmt.Sprintf("variable rule %d", rule), err, "")
	}
	if _, err := v.layout(); err != nil {
		return nil, err
	}
	v.waiting.Store(vs)
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.list = append(vs.list, v)
	return v, nil
}

// Pull copies the variables' values back to the store, for a checkpoint for example. It waits for
// the steps under way. With several processes, all processes call it at the same point; see
// [Variable.Value]. After an error some variables have been copied.
func (vs *Variables) Pull(ctx context.Context) error {
	if err := RefuseTracing(ctx, "pull", fault.InsteadOfCopying); err != nil {
		return err
	}
	ctx, done, err := vs.exclusive(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	for _, v := range vs.All() {
		value, err := v.Value(ctx)
		if err != nil {
			return err
		}
		held, err := vs.held(v.path)
		if err != nil {
			return err
		}
		if err := held.SetValue(value); err != nil {
			return v.failed(err)
		}
	}
	return nil
}

// Push copies the store's values to the devices, after a checkpoint was loaded for example. Each
// process copies to its own devices, so the stores of all processes must hold the same values, and
// all processes call it. After an error some variables have been copied.
func (vs *Variables) Push(ctx context.Context) error {
	if err := RefuseTracing(ctx, "push", fault.InsteadOfCopying); err != nil {
		return err
	}
	ctx, done, err := vs.exclusive(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	for _, v := range vs.All() {
		if v.waiting.Load() != nil {
			continue // it arrives with the store's value
		}
		value, err := vs.valueOf(v)
		if err != nil {
			return err
		}
		if err := v.Assign(ctx, value); err != nil {
			return err
		}
	}
	return nil
}

// held is the store's variable of a path, which may have been deleted meanwhile.
func (vs *Variables) held(path string) (*model.Variable, error) {
	if v := vs.store.GetVariable(path); v != nil {
		return v, nil
	}
	return nil, fault.New(errkind.ValueError, fmt.Sprintf("variable %q", path), "delete a store's variables before its first step, or make a new store",
		"it is on the devices, but no longer in its store")
}

// valueOf is the store's value of a variable.
func (vs *Variables) valueOf(v *Variable) (*tensors.Tensor, error) {
	held, err := vs.held(v.path)
	if err != nil {
		return nil, err
	}
	value, err := held.Value()
	return value, v.failed(err)
}

func (vs *Variables) free() error {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	var errs []error
	for _, v := range vs.list {
		errs = append(errs, v.free())
	}
	return errors.Join(errs...)
}
