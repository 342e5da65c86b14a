package strategy

import (
	"context"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// Destination says where a reduced or broadcast value goes. The zero value is none,
// which is refused.
type Destination struct {
	of      any
	devices []string
}

// To is where a variable or a value is: on all replicas, and, for a tensor of its
// shape, split over the logical devices as it is.
func To[T *Variable | *PerReplica | *Mirrored | *Merged](x T) Destination { return Destination{of: x} }

// ToDevices are devices by name, as [Extended.WorkerDevices] and
// [Extended.NonSlotDevices] give them. What is reduced to the worker devices is on all
// logical devices of the replicas; to fewer or other devices, on these alone; to a host,
// in its memory. Another name is an error of the call that is given the destination.
func ToDevices(names ...string) Destination { return Destination{devices: names} }

// place is where a destination that was checked is.
type place struct {
	// annotation is how tensors of the shape are split; of other shapes it says nothing.
	annotation logical.Annotation
	shape      shapes.Shape
	// host says that the destination is a host, only which partitions it has, nil for
	// all.
	host bool
	only []bool
}

// of is the annotation of a tensor at the place.
func (p place) of(dims []int, otherwise logical.Annotation) logical.Annotation {
	if p.only != nil {
		return logical.Annotation{} // a device holds all of it
	}
	if p.annotation.Kind() != logical.None && slices.Equal(dims, p.shape.Dimensions) {
		return p.annotation
	}
	return otherwise
}

// split annotates a node of a step as the place says.
func (p place) split(x *graph.Node) *graph.Node {
	return logical.Apply(x, p.of(x.Shape().Dimensions, logical.Annotation{}))
}

// destination checks a destination, and says where it is.
func (e *Extended) destination(op string, d Destination) (place, error) {
	s := e.strategy
	switch x := d.of.(type) {
	case *Variable:
		if x != nil {
			return place{annotation: x.annotation, shape: x.Shape()}, s.ownsVariable(op, x)
		}
	case *Merged:
		if x != nil {
			return place{}, nil
		}
	case Value:
		if !isNil(x) {
			return place{annotation: x.Annotation(), shape: x.Shape()}, s.owns(x)
		}
	default:
		if len(d.devices) > 0 {
			return e.devices(op, d.devices)
		}
	}
	return place{}, fault.New(AssertionError, op, "use To or ToDevices", "no destination")
}

// devices is the place of devices by name.
func (e *Extended) devices(op string, names []string) (p place, err error) {
	s := e.strategy
	only, hosts := make([]bool, len(s.devices)), 0
	for _, name := range names {
		known, host := false, false
		for r := range s.replicas {
			host = host || name == s.hostName(r)
			for k := range s.perReplica {
				if name == s.deviceName(r, k) {
					known, only[r*s.perReplica+k] = true, true
				}
			}
		}
		switch {
		case known: // on a CPU a device may have the host's name
		case host:
			hosts++
		default:
			return p, fault.New(ValueError, op, "use a name of WorkerDevices", "device %q is not the strategy's", name)
		}
	}
	switch {
	case hosts == len(names):
		return place{host: true}, nil
	case hosts > 0:
		return p, fault.New(ValueError, op, "reduce to the host and to the devices in two calls", "a host beside devices: %q", names)
	}
	for k := range s.perReplica { // a column of all replicas is where variables live
		all := true
		for r := range s.replicas {
			all = all && only[r*s.perReplica+k]
		}
		if all {
			return place{}, nil
		}
	}
	return place{only: only}, nil
}

// settle brings a value of all devices to a place: itself, on fewer devices, or its
// copy on the host. The value is given up if another comes back.
func (s *TPUStrategy) settle(ctx context.Context, m *Mirrored, p place) (any, error) {
	switch {
	case p.host:
		defer m.Close()
		return s.toHost(ctx, m)
	case p.only != nil:
		return m, m.keep(p.only)
	}
	return m, nil
}

// toHost copies a mirrored value to the host, of whichever process its parts are.
func (s *TPUStrategy) toHost(ctx context.Context, m *Mirrored) (*tensors.Tensor, error) {
	if s.everywhere(false, m.annotation) {
		return m.Value(ctx)
	}
	whole, err := s.copyAs(ctx, m, logical.Replicated())
	if err != nil {
		return nil, err
	}
	defer whole.Close()
	return whole.Value(ctx)
}

// keep gives up the devices but some. What reads the value finds it there; a step that
// takes it brings it to all for the time of the run.
func (v *distributed) keep(only []bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var given []*pjrt.Buffer
	for d, b := range v.buffers {
		if !only[d] && b != nil {
			given, v.buffers[d] = append(given, b), nil
		}
	}
	v.only = only
	return closeAll(given)
}

// on says whether a partition holds its part of the value.
func (v *distributed) on(d int) bool { return v.only == nil || v.only[d] }

// spread brings values that are on some devices to all, for the time of a run. release
// closes the copies.
func (s *TPUStrategy) spread(ctx context.Context, values []Value) (all []Value, release func(), err error) {
	for _, v := range values {
		if v.base().only != nil {
			return s.spreadSome(ctx, values)
		}
	}
	return values, nothing, nil
}

func (s *TPUStrategy) spreadSome(ctx context.Context, values []Value) (all []Value, release func(), err error) {
	var made []Value
	all = slices.Clone(values)
	release = func() {
		for _, v := range made {
			_ = v.Close()
		}
	}
	for i, v := range values {
		if v.base().only == nil {
			continue
		}
		t, err := v.Local(ctx, 0)
		if err == nil {
			var m *Mirrored
			if m, err = s.Mirror(ctx, t, v.Annotation()); err == nil {
				all[i], made = m, append(made, m)
			}
		}
		if err != nil {
			release()
			return nil, nil, err
		}
	}
	return all, release, nil
}
