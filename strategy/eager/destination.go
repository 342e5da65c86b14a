package eager

import (
	"context"
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Destination specifies where a reduced or broadcast value is stored. The zero value is invalid.
type Destination struct {
	of      any
	devices []string
}

// To returns a destination on the same replicas as x, that is, on all replicas. A tensor with the
// shape of x is split over the logical devices like x.
func To[T *strategy.Variable | *strategy.PerReplica | *strategy.Mirrored | *MergeValue](x T) Destination {
	if x == nil {
		return Destination{}
	}
	return Destination{of: x}
}

// ToDevices returns a destination that consists of the devices with the given names; see
// [Extended.WorkerDevices] and [Extended.NonSlotDevices]. If the devices are the worker devices,
// the value is stored on all logical devices of the replicas. Otherwise it is stored only on the
// named devices, or in the memory of a named host. The call that receives the destination returns
// an error for an unknown name.
func ToDevices(names ...string) Destination { return Destination{devices: names} }

// placement describes the devices or the host of a Destination.
type placement struct {
	// annotation is the split of tensors with the given shape. It does not apply to other shapes.
	annotation logical.Annotation
	shape      shapes.Shape
	// host reports that the location is a host. only reports for each partition whether it belongs
	// to the location; nil means all.
	host bool
	only []bool
}

// annotationFor returns how a tensor with dimensions dims is split at the placement. It returns
// otherwise if the placement does not specify a split.
func (p placement) annotationFor(dims []int, otherwise logical.Annotation) logical.Annotation {
	if p.only != nil {
		return logical.Annotation{} // each device has the whole tensor
	}
	if p.annotation.Kind() != logical.KindNone && slices.Equal(dims, p.shape.Dimensions) {
		return p.annotation
	}
	return otherwise
}

// placementOf validates a destination and returns its placement.
func (e *Extended) placementOf(op string, d Destination) (placement, error) {
	s := e.strategy
	switch x := d.of.(type) {
	case *strategy.Variable:
		return placement{annotation: x.Annotation(), shape: x.Shape()}, engine.Internal(s).CheckOwned(op, x)
	case *MergeValue:
		return placement{}, nil
	case strategy.Value:
		return placement{annotation: x.Annotation(), shape: x.Shape()}, engine.Internal(s).CheckOwned("value", x)
	default:
		if len(d.devices) > 0 {
			return e.resolveDevices(op, d.devices)
		}
	}
	return placement{}, fault.New(errkind.AssertionError, op, "use To or ToDevices", "no destination")
}

// resolveDevices returns the placement on the devices or hosts with the given names.
func (e *Extended) resolveDevices(op string, names []string) (p placement, err error) {
	s := e.strategy
	deviceNames, hostNames, _ := engine.Internal(s).DeviceNames()
	only, hosts := make([]bool, s.NumReplicasInSync()*s.NumLogicalDevices()), 0
	for _, name := range names {
		known, host := false, slices.Contains(hostNames, name)
		for r := range deviceNames {
			for k := range deviceNames[r] {
				if name == deviceNames[r][k] {
					known, only[r*s.NumLogicalDevices()+k] = true, true
				}
			}
		}
		switch {
		case known: // on a CPU a device may have the host's name
		case host:
			hosts++
		default:
			return p, fault.New(errkind.ValueError, op, "use a name of WorkerDevices",
				"device %q is not the strategy's", name)
		}
	}
	switch {
	case hosts == len(names):
		return placement{host: true}, nil
	case hosts > 0:
		return p, fault.New(errkind.ValueError, op, "reduce to the host and to the devices in two calls",
			"a host beside devices: %q", names)
	}
	for k := range s.NumLogicalDevices() { // variables are on one logical device of all replicas
		all := true
		for r := range s.NumReplicasInSync() {
			all = all && only[r*s.NumLogicalDevices()+k]
		}
		if all {
			return placement{}, nil
		}
	}
	return placement{only: only}, nil
}

// moveResult moves a value from all devices to a placement. It returns m if the placement consists
// of devices, and releases m on all other devices. If the placement is a host, moveResult returns a
// host copy and closes m.
func (e *Extended) moveResult(ctx context.Context, m *strategy.Mirrored, p placement) (any, error) {
	s := e.strategy
	switch {
	case p.host:
		defer m.Close()
		return engine.Internal(s).CopyToHost(ctx, m)
	case p.only != nil:
		return m, engine.Internal(m).KeepOnDevices(p.only)
	}
	return m, nil
}
