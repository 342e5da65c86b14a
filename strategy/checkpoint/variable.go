package checkpoint

import (
	"context"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Variable is a value that can be saved and restored. [strategy.Variable] implements it for every
// synchronization and aggregation. The variables of [StoreGroup] implement it, too.
type Variable interface {
	// Path returns the variable's path in its model, such as "/hidden/weights".
	Path() string
	// Shape returns the dtype and the dimensions of the saved value, row-major.
	Shape() shapes.Shape
	// SaveValue returns the value to save. The caller only reads it, until the variable changes.
	SaveValue(ctx context.Context) (*tensors.Tensor, error)
	// RestoreValue assigns a saved value of the variable's shape. The variable may keep the tensor.
	RestoreValue(ctx context.Context, saved *tensors.Tensor) error
}

var _ Variable = (*strategy.Variable)(nil)

// Group is a list of variables that are saved and restored together, like TensorFlow's
// tf.train.Checkpoint. The zero Group is empty.
type Group struct {
	Variables []Variable
	// Create creates a variable for a saved variable that Variables lacks, and keeps the value. If
	// it is nil, no variable is created.
	Create func(info Info, value *tensors.Tensor) error
	// canCreate reports which saved variables Create creates; nil means all.
	canCreate func(info Info) bool
}

// createsVariable reports whether the group creates a variable for a saved value without a
// variable. It does not create the sums of metrics, because only the step with these metrics can
// use them.
func (g Group) createsVariable(info Info) bool {
	return g.Create != nil && info.Shape.Ok() && !savedstep.IsMetricStateName(info.Path) && (g.canCreate == nil ||
		g.canCreate(info))
}

// With returns the group with additional variables. It skips each strategy variable that the group
// already has.
func (g Group) With(variables ...Variable) Group {
	g.Variables = append([]Variable(nil), g.Variables...)
	for _, v := range variables {
		if !slices.ContainsFunc(g.Variables, func(other Variable) bool { return isSameVariable(v, other) }) {
			g.Variables = append(g.Variables, v)
		}
	}
	return g
}

// Without returns the group without the given variables. Nil variables are ignored.
func (g Group) Without(variables ...Variable) Group {
	g.Variables = slices.DeleteFunc(slices.Clone(g.Variables), func(v Variable) bool {
		return slices.ContainsFunc(variables, func(other Variable) bool { return v == other || isSameVariable(v, other) })
	})
	return g
}

// isSameVariable reports whether a and b are the same variable of a strategy. It returns false if a
// or b is another implementation of Variable.
func isSameVariable(a, b Variable) bool {
	x, ok := a.(*strategy.Variable)
	y, okB := b.(*strategy.Variable)
	return ok && okB && x == y
}

// StoreGroup returns the variables of a GoMLX store as a group, for use without devices. A restore
// creates variables that the store does not have yet, with their saved values. When the model looks
// up a variable, it finds the restored variable.
//
// A store is not safe for concurrent use: no other goroutine may use it during a save or a restore.
func StoreGroup(store *model.Store) Group {
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

// StrategyGroup returns all variables of a strategy and a store as a group, like
// tf.train.Checkpoint with all variables of its objects. A variable of the store is saved from the
// devices if a step has used it, and otherwise from the store, from which the first step copies it.
// The group also has all variables of the strategy's scope, trained or not: counters, metrics and
// variables that differ between replicas, each by its rule in the package comment. The save returns
// an error with the name of a variable that cannot be saved. [Group.Without] excludes variables.
// Launch no step during a save, because it reads the variables one after another.
//
// Create the scope's variables before a restore. A restore only creates variables of the store,
// whose paths begin with "/". If only the checkpoint or only the scope has a variable, the error is
// a [*MismatchError] with its name. The running sums of metrics are an exception: they are restored
// if a step or an evaluation of the same name has the same metrics, and remain unchanged otherwise.
// Checkpoints of earlier versions of this package contain only those variables of the scope that
// training steps train: RestoreOptions.AllowMissing leaves the others unchanged.
func StrategyGroup(s *strategy.TPUStrategy, store *model.Store) Group {
	g := StoreGroup(store)
	g.canCreate = func(info Info) bool { return strings.HasPrefix(info.Path, "/") }
	onDevices := s.Variables(store)
	for i, v := range g.Variables {
		if deviceVariable, ok := onDevices.Lookup(v.Path()); ok {
			g.Variables[i] = deviceVariable
		}
	}
	for _, v := range s.DistributedVariables() {
		g = g.With(v)
	}
	return g
}

// storeVariable implements [Variable] for a variable of a GoMLX store.
type storeVariable struct{ v *model.Variable }

func (s storeVariable) Path() string        { return s.v.Path() }
func (s storeVariable) Shape() shapes.Shape { return s.v.Shape() }
func (s storeVariable) Trainable() bool     { return s.v.Trainable }

func (s storeVariable) SaveValue(context.Context) (*tensors.Tensor, error) {
	if !s.v.HasValue() {
		return nil, variableError(s.v.Path(), "it has no value yet", "run a step first, or the store's InitializeVariables",
			nil)
	}
	return s.v.Value()
}

func (s storeVariable) RestoreValue(_ context.Context, value *tensors.Tensor) error {
	if err := s.v.SetValue(value); err != nil {
		return variableError(s.v.Path(), "not restored", "", err)
	}
	return nil
}

// strategyOf returns the strategy that owns a variable, or nil if the variable belongs to no
// strategy.
func strategyOf(v Variable) *strategy.TPUStrategy {
	if of, ok := v.(interface{ Strategy() *strategy.TPUStrategy }); ok {
		return of.Strategy()
	}
	return nil
}

// asShardedVariable converts v to a variable of a strategy. The result ok is true if all replicas
// have the same value, so that each device can save and restore its own shard.
func asShardedVariable(v Variable) (sv *strategy.Variable, ok bool) {
	sv, ok = v.(*strategy.Variable)
	return sv, ok && sv.Synchronization() == strategy.OnWrite && !sv.LocalWrites() && sv.Shape().Size() > 0
}

// componentRules is implemented by variables that may have a different value on each replica.
type componentRules interface {
	Synchronization() strategy.VariableSynchronization
	Aggregation() strategy.VariableAggregation
}

// combineRules returns the synchronization and the aggregation by which the replicas' values of a
// variable are combined into one value. It returns an error if these values cannot be combined.
func combineRules(v Variable) (strategy.VariableSynchronization, strategy.VariableAggregation, error) {
	d, ok := v.(componentRules)
	if !ok {
		return strategy.OnWrite, strategy.AggregateNone, nil
	}
	if d.Synchronization() == strategy.OnRead && d.Aggregation() == strategy.AggregateNone {
		return 0, 0, variableError(v.Path(),
			"its components are read one by one and aggregation NONE combines them to nothing",
			"make it with AggregateSum, AggregateMean or AggregateFirst, or leave it out with Group.Without", nil)
	}
	return d.Synchronization(), d.Aggregation(), nil
}
