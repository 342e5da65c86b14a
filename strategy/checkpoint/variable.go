package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Variable is what can be saved and restored. A *strategy.Variable is one, whatever
// its synchronization and aggregation; so are those of [Store].
type Variable interface {
	// Path names the variable in its model, such as "/hidden/weights".
	Path() string
	// Shape is the dtype and the dimensions of the saved value, row-major.
	Shape() shapes.Shape
	// SaveValue is the value to save. The caller only reads it, and before the
	// variable changes again.
	SaveValue(ctx context.Context) (*tensors.Tensor, error)
	// RestoreValue writes a value of that shape back. The variable may keep the
	// tensor.
	RestoreValue(ctx context.Context, saved *tensors.Tensor) error
}

var _ Variable = (*strategy.Variable)(nil)

// Group is a list of variables that are saved and restored together. The zero
// Group is empty.
type Group struct {
	Variables []Variable
	// Create takes a saved variable that Variables lacks, and keeps the value. Nil
	// takes none.
	Create func(info Info, value *tensors.Tensor) error
	// takes says which of them Create takes; nil says all.
	takes func(info Info) bool
}

// creates reports whether the group makes a saved variable that it lacks.
func (g Group) creates(info Info) bool {
	return g.Create != nil && info.Shape.Ok() && (g.takes == nil || g.takes(info))
}

// With returns the group with more variables. One that is in the group already is not
// there twice.
func (g Group) With(more ...Variable) Group {
	g.Variables = append([]Variable(nil), g.Variables...)
	for _, v := range more {
		if !slices.ContainsFunc(g.Variables, func(other Variable) bool { return same(v, other) }) {
			g.Variables = append(g.Variables, v)
		}
	}
	return g
}

// same reports whether two are one variable of a strategy.
func same(a, b Variable) bool {
	x, ok := a.(*strategy.Variable)
	y, too := b.(*strategy.Variable)
	return ok && too && x == y
}

// Store is the group of a GoMLX store's variables, with no devices involved.
// Variables that the store does not have yet are created by a restore, with the
// saved value, which the model finds when it asks for them.
//
// A store is not safe for concurrent use: nothing else may use it meanwhile.
func Store(store *model.Store) Group {
	var g Group
	for v := range store.IterVariables() {
		g.Variables = append(g.Variables, stored{v})
	}
	g.Create = func(info Info, value *tensors.Tensor) error {
		v, err := store.CreateVariable(info.Path, value)
		if err != nil {
			return err
		}
		v.SetTrainable(info.Trainable)
		return nil
	}
	return g
}

// Strategy is the group of a store's variables where a strategy has them: on its
// devices, for those that a step has used, else in the store, from where the first
// step takes them. The variables of the strategy's scope that training steps train are
// in it too. No step may be launched while it is saved: the variables are read one after
// another. Add the strategy's other variables with [Group.With].
//
// Make the scope's variables before a restore: a saved one that the scope lacks is a
// [*MismatchError], as only the variables of the store, whose paths begin with "/", are
// created.
func Strategy(s *strategy.TPUStrategy, store *model.Store) Group {
	g := Store(store)
	g.takes = func(info Info) bool { return strings.HasPrefix(info.Path, "/") }
	onDevices := s.Variables(store)
	for i, v := range g.Variables {
		if placed, ok := onDevices.Lookup(v.Path()); ok {
			g.Variables[i] = placed
		}
	}
	for _, v := range s.DistributedVariables() {
		if v.Trains() {
			g = g.With(v)
		}
	}
	return g
}

// stored is a variable of a store.
type stored struct{ v *model.Variable }

func (s stored) Path() string        { return s.v.Path() }
func (s stored) Shape() shapes.Shape { return s.v.Shape() }
func (s stored) Trainable() bool     { return s.v.Trainable }

func (s stored) SaveValue(context.Context) (*tensors.Tensor, error) {
	if !s.v.HasValue() {
		return nil, &VariableError{Path: s.v.Path(), Reason: "it has no value yet", Hint: "run a step first, or the store's InitializeVariables"}
	}
	return s.v.Value()
}

func (s stored) RestoreValue(_ context.Context, value *tensors.Tensor) error {
	if err := s.v.SetValue(value); err != nil {
		return fmt.Errorf("checkpoint: variable %q: %w", s.v.Path(), err)
	}
	return nil
}

// distributed is what a variable of a strategy says of its components.
type distributed interface {
	Synchronization() strategy.VariableSynchronization
	Aggregation() strategy.VariableAggregation
}

// rules returns how a variable's components become one value. A variable that has
// no one value is an error.
func rules(v Variable) (strategy.VariableSynchronization, strategy.VariableAggregation, error) {
	d, ok := v.(distributed)
	if !ok {
		return strategy.OnWrite, strategy.AggregateNone, nil
	}
	if d.Synchronization() == strategy.OnRead && d.Aggregation() == strategy.AggregateNone {
		return 0, 0, &VariableError{Path: v.Path(), Reason: "its components are read one by one and aggregation NONE combines them to nothing",
			Hint: "make it with AggregateSum, AggregateMean or AggregateFirst, or leave it out of the group"}
	}
	return d.Synchronization(), d.Aggregation(), nil
}
