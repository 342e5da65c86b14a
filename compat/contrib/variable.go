package contrib

import (
	"context"
	"fmt"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// Variable has one component for each tower. The components of a mirrored variable are equal and
// are written in an update. Each component of a tower-local variable is written in its tower's
// code. These components are reduced when the variable is fetched, saved, or read in cross-tower
// context. Variable is safe for concurrent use.
type Variable struct {
	d     *DistributionStrategy
	inner *strategy.Variable
}

// wrapVariable returns the Variable for a variable of package strategy. Repeated calls return the
// same Variable.
func (d *DistributionStrategy) wrapVariable(inner *strategy.Variable) *Variable {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.variables[inner]
	if v == nil {
		v = &Variable{d: d, inner: inner}
		d.variables[inner] = v
		d.names[inner.Path()] = true
	}
	return v
}

type localKey struct{}

// TowerLocalVarScope returns a context in which GetVariable creates tower-local variables. It is
// TensorFlow's tower_local_var_scope. Tower-local variables are not trainable. When such a variable
// is read in cross-tower context, its components are reduced by reduceMethod, "sum" or "mean". ctx
// must be in the strategy's scope, cross-tower or in a tower.
func (d *DistributionStrategy) TowerLocalVarScope(ctx context.Context, reduceMethod string) (context.Context, error) {
	if err := d.requireOwnContext(ctx, "tower-local scope"); err != nil {
		return nil, err
	}
	if _, err := reduceOp("tower-local scope", reduceMethod); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, localKey{}, reduceMethod), nil
}

// GetVariable creates a variable, like tf.get_variable in the scope: a tower-local variable inside
// TowerLocalVarScope, and a mirrored variable otherwise. initial is the initial value of all
// components: a host value, or a func() any that returns one, which is called once. In a tower's
// code, all towers must create the variable. They receive the same variable, with the first tower's
// initial value.
//
// A name that is already in use is a ValueError.
func (d *DistributionStrategy) GetVariable(ctx context.Context, name string, initial any) (*Variable, error) {
	op := fmt.Sprintf("variable %q", name)
	if err := d.requireOwnContext(ctx, op); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		return nil, noDevicesError(op, "keep a Go variable, or open a strategy, of one replica if need be")
	}
	d.mu.Lock()
	taken := d.names[name]
	d.mu.Unlock()
	if taken || name == "" {
		return nil, newFault(errkind.ValueError, op, "use another name, or keep the variable",
			"it has no name, or exists already")
	}
	if initial == nil {
		return nil, newFault(errkind.TypeError, op, "give a value or a func() any", "no first value")
	}
	opts := strategy.VariableOptions{Name: name}
	if method, ok := ctx.Value(localKey{}).(string); ok {
		opts.Synchronization, opts.Aggregation = strategy.OnRead, strategy.AggregateSum
		if method == "mean" {
			opts.Aggregation = strategy.AggregateMean
		}
	}
	if with, ok := ctx.Value(colocateKey{}).(*Variable); ok {
		opts.ColocateWith = with.inner
	}
	var inner *strategy.Variable
	var err error
	if rc, ok := eager.ReplicaContextOf(ctx); ok {
		inner, err = rc.NewVariable(initial, opts)
	} else {
		inner, err = d.strategy.NewVariable(ctx, initial, opts)
	}
	if err != nil {
		return nil, err
	}
	return d.wrapVariable(inner), nil
}

// Name returns the variable's name.
func (v *Variable) Name() string { return v.inner.Path() }

// Shape returns the dtype and the dimensions of a component.
func (v *Variable) Shape() shapes.Shape { return v.inner.Shape() }

// Devices returns the names of the components' devices, in the order of the towers.
func (v *Variable) Devices() []string { return v.inner.Devices() }

// TowerLocal reports whether the variable is tower-local. Otherwise it is mirrored.
func (v *Variable) TowerLocal() bool { return v.inner.Synchronization() == strategy.OnRead }

// ReduceMethod returns "sum" or "mean" for a tower-local variable, and "" for a mirrored variable.
func (v *Variable) ReduceMethod() string {
	switch v.inner.Aggregation() {
	case strategy.AggregateSum:
		return "sum"
	case strategy.AggregateMean:
		return "mean"
	}
	return ""
}

// Trainable reports whether optimizers update the variable.
func (v *Variable) Trainable() bool { return v.inner.Trainable() }

// Variable returns the underlying variable of package strategy.
func (v *Variable) Variable() *strategy.Variable { return v.inner }

func (v *Variable) String() string {
	kind := "MirroredVariable"
	if v.TowerLocal() {
		kind = "TowerLocalVariable"
	}
	return fmt.Sprintf("%s(%s, %s)", kind, v.Name(), v.Shape())
}

// Read returns the value of the variable. In a tower's code and in an update, it is the tower's
// [eager.Component]. In cross-tower context, it is a *[Mirrored], and a tower-local variable is
// reduced first.
func (v *Variable) Read(ctx context.Context) (any, error) {
	if err := v.d.requireOwnContext(ctx, "read "+v.Name()); err != nil {
		return nil, err
	}
	if rc, ok := v.d.componentOps(ctx); ok {
		return rc.Read(v.inner)
	}
	m, err := v.inner.Read(ctx)
	if err != nil {
		return nil, err
	}
	return &Mirrored{perDevice{v.d, m}}, nil
}

// componentOps returns the context that reads and writes components. It returns false outside of a
// tower's code and of an update.
func (d *DistributionStrategy) componentOps(ctx context.Context) (*eager.ReplicaContext, bool) {
	if rc, ok := eager.ReplicaContextOf(ctx); ok {
		return rc, true
	}
	if _, ok := eager.UpdateReplicaID(ctx); !ok {
		return nil, false
	}
	u, ok := ctx.Value(updateKey{}).(*UpdateContext)
	if !ok || u.d != d {
		return nil, false
	}
	return u.rc, true
}

// Assign writes the component and returns its new value, like TensorFlow's assign. A mirrored
// variable can only be written in an update, with equal values on all towers. A tower-local
// variable can only be written in a tower's code. Elsewhere the error matches
// [strategy.ErrContext].
func (v *Variable) Assign(ctx context.Context, x any) (any, error) {
	return v.write(ctx, "assign", (*eager.ReplicaContext).Assign, x)
}

// AssignAdd adds to the component, like Assign.
func (v *Variable) AssignAdd(ctx context.Context, x any) (any, error) {
	return v.write(ctx, "assign_add", (*eager.ReplicaContext).AssignAdd, x)
}

// AssignSub subtracts from the component, like Assign.
func (v *Variable) AssignSub(ctx context.Context, x any) (any, error) {
	return v.write(ctx, "assign_sub", (*eager.ReplicaContext).AssignSub, x)
}

func (v *Variable) write(ctx context.Context, name string,
	write func(*eager.ReplicaContext, *strategy.Variable, any) (any, error), x any) (any, error) {
	op := fmt.Sprintf("%s %q", name, v.Name())
	if err := v.d.refuseTracing(ctx, op); err != nil {
		return nil, err
	}
	// Outside every scope the default strategy's single tower would run: neither a
	// tower of this strategy nor an update of it.
	if s, ok := eager.FromContext(ctx); ok && s != v.d.strategy {
		return nil, otherStrategyError(op, "the variable")
	}
	_, inTower := eager.ReplicaContextOf(ctx)
	rc, ok := v.d.componentOps(ctx)
	switch {
	case v.TowerLocal() && !inTower:
		return nil, contextError(op, "a tower-local variable outside a tower's code",
			"write it in the function of CallForEachTower")
	case !v.TowerLocal() && (!ok || inTower):
		return nil, contextError(op, "a mirrored variable outside an update", "use DistributionStrategy.Update to modify it")
	}
	return write(rc, v.inner, toOperand(x))
}

// Save returns the value of the variable for a checkpoint. It reduces the components of a
// tower-local variable.
func (v *Variable) Save(ctx context.Context) (*tensors.Tensor, error) { return v.inner.SaveValue(ctx) }

// Restore writes a value from a checkpoint to all components. For a tower-local variable with the
// reduce method "sum", the value is first multiplied by 1/towers in its own dtype, so that a read
// returns the saved value up to rounding. If such a variable has an integer dtype, the error is a
// TypeError.
func (v *Variable) Restore(ctx context.Context, saved *tensors.Tensor) error {
	if v.ReduceMethod() != "sum" {
		return v.inner.RestoreValue(ctx, saved)
	}
	op := fmt.Sprintf("restore %q", v.Name())
	if saved == nil || !saved.Shape().Equal(v.Shape()) {
		return newFault(errkind.ValueError, op, "give a value of its shape and dtype", "another value than %s", v.Shape())
	}
	if t := v.Shape().DType; !t.IsFloat() && !t.IsComplex() {
		return newFault(errkind.TypeError, op, "restore it with RestoreValue of package strategy, whose shares truncate",
			"a share of dtype %s", t)
	}
	n := v.d.NumTowers()
	_, err := eager.Of(v.d.strategy).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		share, err := rc.Mul(saved, 1/float64(n))
		if err != nil {
			return nil, err
		}
		_, err = rc.Assign(v.inner, share)
		return nil, err
	})
	return err
}

// Close releases the variable's memory. Its name can be used again.
func (v *Variable) Close() error {
	if v == nil || v.d == nil {
		return nil
	}
	v.d.mu.Lock()
	delete(v.d.variables, v.inner)
	delete(v.d.names, v.Name())
	v.d.mu.Unlock()
	return v.inner.Close()
}
