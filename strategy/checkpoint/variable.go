package checkpoint

import (
	"context"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Variable is a value that can be saved and restored. [strategy.Variable] implements it, for every
// synchronization and aggregation, and so do the variables of [Store].
type Variable interface {
	// Path returns the variable's path in its model, such as "/hidden/weights".
	Path() string
	// Shape returns the dtype and the dimensions of the saved value, row-major.
	Shape() shapes.Shape
	// SaveValue returns the value to save. The caller only reads the tensor, and only before the
	// variable changes again.
	SaveValue(ctx context.Context) (*tensors.Tensor, error)
	// RestoreValue gives the variable a saved value of its shape. The variable may keep the tensor.
	RestoreValue(ctx context.Context, saved *tensors.Tensor) error
}

var _ Variable = (*strategy.Variable)(nil)

// Group is a list of variables that are saved and restored together, as a tf.train.Checkpoint of
// TensorFlow has them. The zero Group is empty.
type Group struct {
	Variables []Variable
	// Create makes a variable for a saved variable that Variables lacks, and keeps the value. Nil
	// makes none.
	Create func(info Info, value *tensors.Tensor) error
	// takes reports which saved variables Create makes; nil stands for all.
	takes func(info Info) bool
}

// creates reports whether the group makes a saved variable that it lacks. The sums of metrics mean
// nothing without the step that has the metrics.
func (g Group) creates(info Info) bool {
	return g.Create != nil && info.Shape.Ok() && !saved.IsStateName(info.Path) && (g.takes == nil || g.takes(info))
}

// With returns the group with more variables. It leaves out a strategy's variable that is in the
// group already.
func (g Group) With(more ...Variable) Group {
	g.Variables = append([]Variable(nil), g.Variables...)
	for _, v := range more {
		if !slices.ContainsFunc(g.Variables, func(other Variable) bool { return same(v, other) }) {
			g.Variables = append(g.Variables, v)
		}
	}
	return g
}

// Without returns the group without some of its variables. Nil variables stand for none.
func (g Group) Without(some ...Variable) Group {
	g.Variables = slices.DeleteFunc(slices.Clone(g.Variables), func(v Variable) bool {
		return slices.ContainsFunc(some, func(other Variable) bool { return v == other || same(v, other) })
	})
	return g
}

// same reports whether two are one variable of a strategy.
func same(a, b Variable) bool {
	x, ok := a.(*strategy.Variable)
	y, too := b.(*strategy.Variable)
	return ok && too && x == y
}

// Store returns the group of a GoMLX store's variables, for use without devices. A restore creates
// the variables that the store does not have yet, with their saved values; the model finds them
// when it asks for them.
//
// A store is not safe for concurrent use: no other goroutine may use it during a save or a restore.
func Store(store *model.Store) Group {
	var g Group
	for v := range store.IterVariables() {
		g.Variables = append(g.Variables, storeVariable{v})
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

// Strategy returns the group of all variables of a strategy: those of a store where the strategy has
// them, which is on the devices if a step has used them, and otherwise in the store, from where the
// first step takes them; and those of the strategy's scope, whether steps train them or not: counters,
// metrics and what differs between replicas, each by the rule of package checkpoint. So does
// tf.train.Checkpoint with every variable that its objects have. What cannot be saved is an error of
// the save that names it. [Group.Without] leaves variables out. Launch no step during a save, which
// reads the variables one after another.
//
// Make the scope's variables before a restore. A restore creates variables of the store only, whose
// paths begin with "/"; a saved variable that the scope lacks, and one of the scope that was not saved,
// is a [*MismatchError], which names it. The running sums of the metrics of training steps and
// evaluations are none: they are restored where a step or an evaluation of the same name has the same
// metrics, and stay as they are elsewhere. A checkpoint that an earlier version of this package saved
// has of the scope only what training steps train: RestoreOptions.AllowMissing leaves the others as
// they are.
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
		g = g.With(v)
	}
	return g
}

// storeVariable is a variable of a store.
type storeVariable struct{ v *model.Variable }

func (s storeVariable) Path() string        { return s.v.Path() }
func (s storeVariable) Shape() shapes.Shape { return s.v.Shape() }
func (s storeVariable) Trainable() bool     { return s.v.Trainable }

func (s storeVariable) SaveValue(context.Context) (*tensors.Tensor, error) {
	if !s.v.HasValue() {
		return nil, faultOf(s.v.Path(), "it has no value yet", "run a step first, or the store's InitializeVariables", nil)
	}
	return s.v.Value()
}

func (s storeVariable) RestoreValue(_ context.Context, value *tensors.Tensor) error {
	if err := s.v.SetValue(value); err != nil {
		return faultOf(s.v.Path(), "not restored", "", err)
	}
	return nil
}

// strategyOf returns the strategy that a variable is on the devices of, or nil.
func strategyOf(v Variable) *strategy.TPUStrategy {
	if of, ok := v.(interface{ Strategy() *strategy.TPUStrategy }); ok {
		return of.Strategy()
	}
	return nil
}

// inParts returns the variable if its value is one on all replicas, so that each device gets its
// part of what was saved as it is.
func inParts(v Variable) (*strategy.Variable, bool) {
	placed, ok := v.(*strategy.Variable)
	return placed, ok && placed.Synchronization() == strategy.OnWrite && !placed.LocalWrites() && placed.Shape().Size() > 0
}

// componentRules is what a variable of a strategy says of its components.
type componentRules interface {
	Synchronization() strategy.VariableSynchronization
	Aggregation() strategy.VariableAggregation
}

// rules returns how a variable's components become one value. A variable that has no one value is
// an error.
func rules(v Variable) (strategy.VariableSynchronization, strategy.VariableAggregation, error) {
	d, ok := v.(componentRules)
	if !ok {
		return strategy.OnWrite, strategy.AggregateNone, nil
	}
	if d.Synchronization() == strategy.OnRead && d.Aggregation() == strategy.AggregateNone {
		return 0, 0, faultOf(v.Path(), "its components are read one by one and aggregation NONE combines them to nothing", "make it with AggregateSum, AggregateMean or AggregateFirst, or leave it out with Group.Without", nil)
	}
	return d.Synchronization(), d.Aggregation(), nil
}
