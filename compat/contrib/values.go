package contrib

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/nest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

type perDevice struct {
	d *DistributionStrategy
	// value is a strategy.Value or a *strategy.Objects.
	value any
}

// PerDevice is a value that may differ between towers. It maps the towers' devices to values. It is
// immutable and safe for concurrent use.
type PerDevice struct{ perDevice }

// Mirrored is a value that is the same on each tower. It maps the towers' devices to values. It is
// immutable and safe for concurrent use.
type Mirrored struct{ perDevice }

// Devices returns the devices that have a value, in the order of the towers.
func (p *perDevice) Devices() []string {
	towers := p.d.WorkerDevices()
	v, ok := p.value.(strategy.Value)
	if !ok {
		return towers
	}
	var devices []string
	for _, shard := range v.Shards() {
		if slices.Contains(towers, shard.Device) {
			devices = append(devices, shard.Device)
		}
	}
	return devices
}

// OnDevice reports whether the device has a value.
func (p *perDevice) OnDevice(device string) bool { return slices.Contains(p.Devices(), device) }

// Get returns the value for a device: an [eager.Component], which can be copied to the host, or an
// object that is not a tensor. A device without a value is a ValueError.
func (p *perDevice) Get(device string) (any, error) {
	i := slices.Index(p.d.WorkerDevices(), device)
	if i < 0 || !p.OnDevice(device) {
		return nil, newFault(errkind.ValueError, "get", "use a device of WorkerDevices", "no value on device %q, only on %s",
			device, strings.Join(p.Devices(), ", "))
	}
	return eager.Of(p.d.strategy).SelectReplica(i, p.value)
}

// Value returns the underlying value: a *[strategy.PerReplica], a *[strategy.Mirrored] or a
// *[strategy.Objects].
func (p *perDevice) Value() any { return p.value }

// Close releases the device memory. A second Close does nothing.
func (p *perDevice) Close() error {
	if v, ok := p.value.(strategy.Value); ok && p.d != defaultStrategy {
		return v.Close()
	}
	return nil
}

func (p *PerDevice) String() string { return fmt.Sprintf("PerDevice(%v)", p.value) }

func (p *Mirrored) String() string { return fmt.Sprintf("Mirrored(%v)", p.value) }

// PerDevice creates a value from one host value for each tower's device. The values must have the
// same dtype and rank. A missing or unknown device is a ValueError.
func (d *DistributionStrategy) PerDevice(ctx context.Context, values map[string]any) (*PerDevice, error) {
	if err := d.requireCrossTower(ctx, "per device"); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		return nil, noDevicesError("per device", "use the values as they are, or open a strategy")
	}
	devices := d.WorkerDevices()
	ordered := make([]any, len(devices))
	for i, device := range devices {
		x, ok := values[device]
		if !ok || len(values) != len(devices) {
			return nil, newFault(errkind.ValueError, "per device", "give one for each device of WorkerDevices",
				"%d values for %d devices, or none for %q", len(values), len(devices), device)
		}
		ordered[i] = x
	}
	v, err := eager.Of(d.strategy).ValuesFromFunction(ctx,
		func(c eager.ValueContext) (any, error) { return ordered[c.ReplicaIDInSyncGroup], nil })
	if err != nil {
		return nil, err
	}
	switch v.(type) {
	case strategy.Value, *strategy.Objects:
		return &PerDevice{perDevice{d, v}}, nil
	}
	return nil, newFault(errkind.ValueError, "per device", "make one value for each tensor", "nests as values")
}

// wrapValues converts values of package strategy in a nested structure to values of this package.
func (d *DistributionStrategy) wrapValues(op string, nest any) (any, error) {
	return mapNest(op, nest, func(x any) (any, error) {
		switch x := x.(type) {
		case *strategy.PerReplica, *strategy.Objects:
			return &PerDevice{perDevice{d, x}}, nil
		case *strategy.Mirrored:
			return &Mirrored{perDevice{d, x}}, nil
		case *strategy.Variable:
			return d.wrapVariable(x), nil
		}
		return x, nil
	})
}

// asPerDevice converts a PerDevice or Mirrored value to its common type, and reports whether x is
// such a value. For a nil pointer it returns nil and true.
func asPerDevice(x any) (p *perDevice, ok bool) {
	switch x := x.(type) {
	case *PerDevice:
		if x != nil {
			p = &x.perDevice
		}
		return p, true
	case *Mirrored:
		if x != nil {
			p = &x.perDevice
		}
		return p, true
	}
	return nil, false
}

// unwrapValues is the inverse of wrapValues, except that it does not convert variables.
func (d *DistributionStrategy) unwrapValues(op string, nest any) (any, error) {
	return mapNest(op, nest, func(x any) (any, error) {
		if v, ok := x.(*Variable); ok && v != nil && v.d != d && d != defaultStrategy {
			return nil, otherStrategyError(op, "variable "+v.Name())
		}
		p, ok := asPerDevice(x)
		switch {
		case !ok:
			return x, nil
		case p == nil:
			return nil, newFault(errkind.TypeError, op, "give a value", "no value")
		case p.d != d && d == defaultStrategy:
			return x, nil
		case p.d != d:
			return nil, otherStrategyError(op, fmt.Sprint(x))
		}
		return p.value, nil
	})
}

// callTower runs the code of a tower or of an update. It replaces variables in args by their
// components on the tower, and converts the result to values of package strategy.
func (d *DistributionStrategy) callTower(op string, tower int, args []any, code func(args ...any) (any, error)) (any,
	error) {
	components, err := mapArguments(args, func(arg any) (any, error) {
		return mapNest(op, arg, func(x any) (any, error) {
			if v, ok := x.(*Variable); ok && v != nil {
				return eager.Of(v.inner.Strategy()).Component(v.inner, tower)
			}
			return x, nil
		})
	})
	if err != nil {
		return nil, err
	}
	result, err := code(components...)
	if err != nil {
		return nil, err
	}
	return d.unwrapValues(op, result)
}

func (d *DistributionStrategy) unwrapArguments(op string, args []any) ([]any, error) {
	return mapArguments(args, func(arg any) (any, error) { return d.unwrapValues(op, arg) })
}

// Broadcast copies a host value, or one tower's tensor, to all towers, like
// DistributionStrategy.broadcast. Destinations must belong to the strategy, but are otherwise
// ignored.
func (d *DistributionStrategy) Broadcast(ctx context.Context, value any, to ...eager.Destination) (*Mirrored, error) {
	if err := d.requireCrossTower(ctx, "broadcast"); err != nil {
		return nil, err
	}
	if d == defaultStrategy {
		if len(to) > 0 {
			return nil, noDevicesError("broadcast", "leave the destination out")
		}
		return mirrorDefault("broadcast", value)
	}
	switch x := value.(type) {
	case nil:
		return nil, newFault(errkind.TypeError, "broadcast", "give a number or a tensor", "no value")
	case *Mirrored:
		if x != nil && x.d == d {
			return x, nil
		}
		return nil, otherStrategyError("broadcast", "the value")
	case *PerDevice, *Variable:
		return nil, newFault(errkind.AssertionError, "broadcast", "reduce it", "a %T has several values", value)
	case eager.Component:
		t, err := x.Local(ctx)
		if err != nil {
			return nil, err
		}
		value = t
	}
	for _, dest := range to {
		if err := d.checkDestination(ctx, dest); err != nil {
			return nil, err
		}
	}
	m, err := d.strategy.Mirror(ctx, value, logical.Annotation{})
	if err != nil {
		return nil, &errkind.Fault{Op: "contrib: broadcast", Reason: fmt.Sprintf("a value of type %T", value),
			Hint: "give a number or a tensor", Err: err, Class: errkind.TypeError}
	}
	return &Mirrored{perDevice{d, m}}, nil
}

// To returns the devices of a variable or a value as the destination of a reduction or a broadcast.
// Use [eager.ToDevices] to specify devices by name.
func To[T *Variable | *PerDevice | *Mirrored](x T) eager.Destination {
	if v, ok := any(x).(*Variable); ok && v != nil {
		return eager.To(v.inner)
	}
	if p, _ := asPerDevice(x); p != nil {
		return destinationOf(p.value)
	}
	return eager.Destination{}
}

func destinationOf(value any) eager.Destination {
	switch v := value.(type) {
	case *strategy.Variable:
		return eager.To(v)
	case *strategy.PerReplica:
		return eager.To(v)
	case *strategy.Mirrored:
		return eager.To(v)
	}
	return eager.Destination{}
}

// mapNest applies leaf to the leaves of a nested structure and returns the result.
func mapNest(op string, x any, leaf func(any) (any, error)) (any, error) {
	out, err := nest.Map("", x, func(_ string, x any) (any, error) { return leaf(x) })
	if nestErr, ok := err.(*nest.Error); ok {
		kind := errkind.ValueError
		if nestErr.ErrorKind == nest.WrongMemberType {
			kind = errkind.TypeError
		}
		return nil, newFault(kind, op, nestErr.Hint, "%s", nestErr.Reason)
	}
	return out, err
}

// mapArguments applies replace to each argument. Its error contains the index of the argument.
func mapArguments(args []any, replace func(any) (any, error)) ([]any, error) {
	results := make([]any, len(args))
	for i, arg := range args {
		var err error
		if results[i], err = replace(arg); err != nil {
			return nil, fmt.Errorf("contrib: argument %d: %w", i, err)
		}
	}
	return results, nil
}
