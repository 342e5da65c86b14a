package contrib

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// reduceOp converts a reduction method, "sum" or "mean", to a strategy.ReduceOp.
func reduceOp(op, method string) (strategy.ReduceOp, error) {
	switch method {
	case "sum":
		return strategy.Sum, nil
	case "mean":
		return strategy.Mean, nil
	}
	return 0, newFault(errkind.AssertionError, op, `use "sum" or "mean"`, "method %q", method)
}

// Reduce reduces a value over the towers by "sum" or "mean", like DistributionStrategy.reduce. The
// caller must close the result. value must be a [PerDevice] or a tower-local variable; otherwise
// the error is an AssertionError. With a single tower, value may also be a host value.
//
// Without a destination, the result is on the devices of value. If a destination names worker
// devices, the result is only on these devices. With several destinations, it is on all towers.
// Destinations must belong to the strategy.
func (d *DistributionStrategy) Reduce(ctx context.Context, method string, value any,
	to ...eager.Destination) (*Mirrored, error) {
	results, err := d.reduceAll(ctx, "reduce", method, []ReducePair{{value, to}})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// reduceAll reduces several values in one program. call is the name of the calling method, for
// errors.
func (d *DistributionStrategy) reduceAll(ctx context.Context, call, method string,
	pairs []ReducePair) (results []*Mirrored, err error) {
	if err := d.requireCrossTower(ctx, call); err != nil {
		return nil, err
	}
	op, err := reduceOp(call, method)
	if err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		results = make([]*Mirrored, len(pairs))
		for i, p := range pairs {
			if results[i], err = mirrorDefault(call, p.Value); err != nil {
				return nil, err
			}
		}
		return results, nil
	}
	indexed := func(i int, err error) error {
		if len(pairs) == 1 {
			return err
		}
		return fmt.Errorf("contrib: value %d: %w", i, err)
	}
	inner := make([]eager.ReducePair, len(pairs))
	for i, p := range pairs {
		value, isNew, err := d.toReducible(ctx, p.Value)
		if err != nil {
			return nil, indexed(i, err)
		}
		if isNew {
			defer value.(strategy.Value).Close()
		}
		inner[i] = eager.ReducePair{Value: value, To: destinationOf(value)}
		if len(p.To) == 1 {
			inner[i].To = p.To[0]
			continue
		}
		for _, dest := range p.To { // several destinations mean all towers
			if err := d.checkDestination(ctx, dest); err != nil {
				return nil, indexed(i, err)
			}
		}
	}
	reduced, err := eager.Of(d.strategy).BatchReduceTo(ctx, op, inner)
	if err != nil {
		return nil, err
	}
	results = make([]*Mirrored, len(reduced))
	for i, x := range reduced {
		m, ok := x.(*strategy.Mirrored)
		if !ok {
			err = indexed(i, newFault(errkind.ValueError, call, "reduce to the worker devices, and Fetch the result",
				"to a host, which has no tower"))
			continue
		}
		results[i] = &Mirrored{perDevice{d, m}}
	}
	if err != nil {
		for _, m := range results {
			if m != nil {
				err = errors.Join(err, m.Close())
			}
		}
		return nil, err
	}
	return results, nil
}

func (d *DistributionStrategy) checkDestination(ctx context.Context, to eager.Destination) error {
	_, err := eager.Of(d.strategy).BroadcastTo(ctx, 0, to) // the broadcast of a number only checks the destination
	return err
}

// toReducible converts value to a value or variable of package eager. If isNew is set, the caller
// must close the result.
func (d *DistributionStrategy) toReducible(ctx context.Context, value any) (inner any, isNew bool, err error) {
	switch x := value.(type) {
	case *PerDevice:
		v, err := d.unwrapValues("reduce", x)
		if err != nil {
			return nil, false, err
		}
		if p, ok := v.(strategy.Value); ok {
			return p, false, nil
		}
		return nil, false, newFault(errkind.TypeError, "reduce", "reduce tensors", "values that are no tensors: %v", v)
	case *Variable:
		if x == nil || x.d != d {
			return nil, false, otherStrategyError("reduce", "the variable")
		}
		if !x.TowerLocal() {
			break
		}
		return x.inner, false, nil
	case *Mirrored:
	default:
		if !d.IsSingleTower() {
			break
		}
		p, err := d.strategy.PerReplica(ctx, []any{value}, logical.Annotation{})
		if err != nil {
			return nil, false, &errkind.Fault{Op: "contrib: reduce", Reason: fmt.Sprintf("a value of type %T", value),
				Err: err, Class: errkind.AssertionError}
		}
		return p, true, nil
	}
	return nil, false, newFault(errkind.AssertionError, "reduce", "give what CallForEachTower returns",
		"a %T is no PerDevice value", value)
}

// ReducePair is a value to reduce and its destinations. To may be empty.
type ReducePair struct {
	Value any
	To    []eager.Destination
}

// BatchReduce reduces several values like Reduce, but in one program. It is TensorFlow's
// batch_reduce. The results are in the order of the pairs. If one value cannot be reduced,
// BatchReduce reduces none, and the error names the value.
func (d *DistributionStrategy) BatchReduce(ctx context.Context, method string, pairs []ReducePair) ([]*Mirrored,
	error) {
	return d.reduceAll(ctx, "batch reduce", method, pairs)
}

// FetchOptions configures [DistributionStrategy.Fetch]. The zero value copies the value from the
// first tower.
type FetchOptions struct {
	// Device is the name of a worker device, whose copy is read, or of a host. TensorFlow's default
	// destination "/device:CPU:0" is also accepted. Any other name is an error of kind ValueError.
	// The default is the first worker device.
	Device string
	// Function is applied on the devices before the copy. It must have one argument and one result.
	Function *strategy.Function
}

// Fetch copies a value to the host, like DistributionStrategy.fetch. value is a [Mirrored] or a
// variable; any other value is an AssertionError. The components of a tower-local variable are
// reduced before the copy.
func (d *DistributionStrategy) Fetch(ctx context.Context, value any, opts FetchOptions) (*tensors.Tensor, error) {
	if err := d.requireCrossTower(ctx, "fetch"); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		return fetchDefault(value, opts)
	}
	tower := max(0, slices.Index(d.WorkerDevices(), opts.Device))
	hosts := append(d.NonSlotDevices(), "", "/device:CPU:0")
	if d.WorkerDevices()[tower] != opts.Device && !slices.Contains(hosts, opts.Device) {
		return nil, newFault(errkind.ValueError, "fetch", "use a name that WorkerDevices or NonSlotDevices returns",
			"device %q is not a device of the strategy", opts.Device)
	}
	var source *strategy.Mirrored
	switch x := value.(type) {
	case *Mirrored:
		inner, err := d.unwrapValues("fetch", x)
		if err != nil {
			return nil, err
		}
		source = inner.(*strategy.Mirrored)
	case *Variable:
		if x == nil || x.d != d {
			return nil, otherStrategyError("fetch", "the variable")
		}
		var err error
		if source, err = x.inner.Read(ctx); err != nil {
			return nil, err
		}
		defer source.Close()
	default:
		return nil, newFault(errkind.AssertionError, "fetch", "reduce it first", "a %T is no mirrored value and no variable",
			value)
	}
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
		return nil, newFault(errkind.ValueError, "fetch", "give a function of one result", "a function of %d results",
			len(results))
	}
	return results[0].Local(ctx, tower)
}
