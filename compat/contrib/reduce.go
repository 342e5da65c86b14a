package contrib

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// reduceOp is the reduction of a method string: "sum" or "mean", in lower case.
func reduceOp(op, method string) (strategy.ReduceOp, error) {
	switch method {
	case "sum":
		return strategy.Sum, nil
	case "mean":
		return strategy.Mean, nil
	}
	return 0, fault(strategy.AssertionError, op, `use "sum" or "mean"`, "method %q", method)
}

// Reduce combines a value over the towers by "sum" or "mean", as DistributionStrategy.reduce does;
// the result is on every tower, and the caller closes it. A destination has to be the strategy's;
// without a destination the result is where value is.
//
// To one or some of the worker devices, the result is on these devices alone; to several
// destinations it is everywhere.
//
// value is a [PerDevice] or a tower-local variable, otherwise the error is of kind AssertionError;
// with a single tower value may be a host value.
func (d *DistributionStrategy) Reduce(ctx context.Context, method string, value any, to ...eager.Destination) (*Mirrored, error) {
	if err := d.requireCross(ctx, "reduce"); err != nil {
		return nil, err
	}
	op, err := reduceOp("reduce", method)
	if err != nil {
		return nil, err
	}
	inner, done, err := d.reducible(ctx, value)
	if err != nil {
		return nil, err
	}
	defer done()
	if len(to) != 1 { // nowhere in particular, or to several: everywhere
		to = append(slices.Clone(to), destinationOf(inner))
	}
	var result any
	for _, dest := range to {
		if v, ok := result.(*strategy.Mirrored); ok {
			_ = v.Close()
		}
		if result, err = eager.Of(d.strategy).ReduceTo(ctx, op, inner, dest); err != nil {
			return nil, err
		}
	}
	if m, ok := result.(*strategy.Mirrored); ok {
		return &Mirrored{perDevice{d, m}}, nil
	}
	return nil, fault(strategy.ValueError, "reduce", "reduce to the worker devices, and Fetch the result", "to a host, which has no tower")
}

// reducible returns a value that Reduce takes; done releases what was made for it.
func (d *DistributionStrategy) reducible(ctx context.Context, value any) (inner strategy.Value, done func(), err error) {
	keep := func() {}
	switch x := value.(type) {
	case *PerDevice:
		v, err := d.unwrap("reduce", x)
		if err != nil {
			return nil, nil, err
		}
		if p, ok := v.(strategy.Value); ok {
			return p, keep, nil
		}
		return nil, nil, fault(strategy.TypeError, "reduce", "reduce tensors", "values that are no tensors: %v", v)
	case *Variable:
		if x == nil || x.d != d {
			return nil, nil, &strategy.StrategyError{Op: "reduce", Subject: "the variable"}
		}
		if !x.TowerLocal() {
			break
		}
		p, err := d.components(ctx, x)
		if err != nil {
			return nil, nil, err
		}
		return p, func() { _ = p.Close() }, nil
	case *Mirrored:
	default:
		if !d.IsSingleTower() {
			break
		}
		p, err := d.strategy.PerReplica(ctx, []any{value}, logical.Annotation{})
		if err != nil {
			return nil, nil, &Error{Op: "reduce", Reason: fmt.Sprintf("a value of type %T", value), Err: err, Class: strategy.AssertionError}
		}
		return p, func() { _ = p.Close() }, nil
	}
	return nil, nil, fault(strategy.AssertionError, "reduce", "give what CallForEachTower returns", "a %T is no PerDevice value", value)
}

// components copies a tower-local variable's components.
func (d *DistributionStrategy) components(ctx context.Context, v *Variable) (strategy.Value, error) {
	x, err := eager.Of(d.strategy).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.Read(v.inner) })
	if err != nil {
		return nil, err
	}
	p, ok := x.(strategy.Value)
	if !ok {
		return nil, fault(strategy.AssertionError, "reduce", "", "components %v", x)
	}
	return p, nil
}

// ReducePair is a value of BatchReduce and its destination; without a destination, To is empty.
type ReducePair struct {
	Value any
	To    []eager.Destination
}

// BatchReduce reduces several values, in order, each as Reduce does: TensorFlow's batch_reduce.
func (d *DistributionStrategy) BatchReduce(ctx context.Context, method string, pairs []ReducePair) ([]*Mirrored, error) {
	if err := d.requireCross(ctx, "batch reduce"); err != nil {
		return nil, err
	}
	if _, err := reduceOp("batch reduce", method); err != nil {
		return nil, err
	}
	results := make([]*Mirrored, len(pairs))
	for i, p := range pairs {
		var err error
		if results[i], err = d.Reduce(ctx, method, p.Value, p.To...); err != nil {
			for _, r := range results[:i] {
				_ = r.Close()
			}
			return nil, fmt.Errorf("contrib: value %d: %w", i, err)
		}
	}
	return results, nil
}

// FetchOptions say what Fetch copies. The zero value copies the value as it is, from the first
// tower.
type FetchOptions struct {
	// Device names the worker device whose copy is read, if it has one.
	Device string
	// Function is applied on the devices before the copy. It has one argument and
	// one result.
	Function *strategy.Function
}

// Fetch copies a value to the host and waits for it, as DistributionStrategy.fetch does: that of a
// [Mirrored], or of a variable, whose components are combined first if it is tower-local. Another
// value is an error of kind AssertionError.
func (d *DistributionStrategy) Fetch(ctx context.Context, value any, opts FetchOptions) (*tensors.Tensor, error) {
	if err := d.requireCross(ctx, "fetch"); err != nil {
		return nil, err
	}
	var source *strategy.Mirrored
	switch x := value.(type) {
	case *Mirrored:
		inner, err := d.unwrap("fetch", x)
		if err != nil {
			return nil, err
		}
		source = inner.(*strategy.Mirrored)
	case *Variable:
		if x == nil || x.d != d {
			return nil, &strategy.StrategyError{Op: "fetch", Subject: "the variable"}
		}
		var err error
		if source, err = x.inner.Read(ctx); err != nil {
			return nil, err
		}
		defer source.Close()
	default:
		return nil, fault(strategy.AssertionError, "fetch", "reduce it first", "a %T is no mirrored value and no variable", value)
	}
	tower := max(0, slices.Index(d.WorkerDevices(), opts.Device))
	if opts.Function == nil {
		return source.Local(ctx, tower)
	}
	results, err := opts.Function.Run(ctx, source)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, r := range results {
			_ = r.Close()
		}
	}()
	if len(results) != 1 {
		return nil, fault(strategy.ValueError, "fetch", "give a function of one result", "a function of %d results", len(results))
	}
	return results[0].Local(ctx, tower)
}
