package tpu

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// DeviceOrder is the order in which replicas and their cores walk the mesh. It is TensorFlow's
// DeviceOrderMode.
type DeviceOrder int

const (
	// AutoOrder is [RingOrder] where that is possible, else [MeshOrder].
	AutoOrder DeviceOrder = iota
	// RingOrder walks rings of neighboring chips, so that collectives between consecutive
	// replicas, and between the cores of a replica, are between neighbors. It needs replicas that
	// fill the mesh, with all cores of a chip in one replica and no stride.
	RingOrder
	// MeshOrder walks the mesh row by row: core fastest, then x, y, z.
	MeshOrder
)

// String returns AUTO, RING or MESH.
func (o DeviceOrder) String() string { return enum.Name(o, "AUTO", "RING", "MESH") }

// AssignmentOptions says how [BuildDeviceAssignment] places replicas. The zero value is one replica
// of one core.
type AssignmentOptions struct {
	// ComputationShape is the block of cores of one replica, in x, y, z and core; nil is [1, 1, 1,
	// 1]. Its size is the number of logical cores.
	ComputationShape []int
	// ComputationStride is the distance between the cores of a replica on each axis; nil is [1, 1,
	// 1, 1]. Other replicas fill the gaps.
	ComputationStride []int
	// Replicas is the number of replicas; 0 is 1. [AssignmentOptions.Fit] says how many fit.
	Replicas int
	// Order is the order in which replicas and cores walk the mesh.
	Order DeviceOrder
	// BySlice gives each slice of a topology of several the same number of whole replicas, slice by
	// slice: of R replicas on S slices, replica r is on slice r/(R/S) with all its logical cores, in
	// the order that one slice by itself would have. Then only what replicas say to each other, such
	// as a mean of gradients, crosses the data-center network. Without it, replicas walk the mesh of
	// all slices as TensorFlow's algorithm does.
	BySlice bool
}

// BuildDeviceAssignment places replicas on a slice as TensorFlow's
// tf.tpu.experimental.DeviceAssignment.build (device_assignment in its sources) does, core for
// core. A problem is an [*AssignmentError]. They are looked for in this order: the shape, the
// stride, the footprint (shape times stride) against the mesh, the number of replicas, the order.
//
// On a slice with missing devices, cores are dealt in task order, and the computation shape gives
// only their number; strides are refused.
//
// The cost is linear in the cores assigned.
func BuildDeviceAssignment(topology Topology, options AssignmentOptions) (DeviceAssignment, error) {
	plan, err := newPlan(topology, options)
	if err != nil {
		return DeviceAssignment{}, err
	}
	a := DeviceAssignment{topology: topology, replicas: plan.replicas * plan.slices, cores: product(plan.shape)}
	a.assigned = make([]int32, 0, a.replicas*a.cores)
	if topology.hasMissing() {
		for k := range a.replicas * a.cores {
			a.assigned = append(a.assigned, int32(k))
		}
		return a, nil
	}
	for slice := range plan.slices {
		put := func(c Coordinates) {
			c[0] += slice * plan.mesh[0]
			a.assigned = append(a.assigned, topology.flat[topology.place(c)])
		}
		if plan.ring {
			plan.walkRings(put)
		} else {
			plan.walkMesh(put)
		}
	}
	return a, nil
}

// plan is a checked request.
type plan struct {
	mesh, shape, stride Coordinates
	footprint           Coordinates // mesh cells that one block with its gaps spans
	room                Coordinates // replicas that fit along each axis
	fit                 int
	replicas            int
	ring                bool
	slices              int // the plan is for each of so many, side by side along x
}

func newPlan(topology Topology, options AssignmentOptions) (plan, error) {
	slices := 1
	if options.BySlice {
		slices = topology.NumSlices()
	}
	topology, options, err := perSlice(topology, options)
	if err != nil {
		return plan{}, err
	}
	p := plan{mesh: topology.mesh, replicas: options.Replicas, slices: slices}
	if p.replicas == 0 {
		p.replicas = 1
	}
	if topology.mesh == (Coordinates{}) {
		return p, topologyError("MeshShape", "make it with NewTopology", "the topology is empty")
	}
	if p.shape, err = vector("ComputationShape", options.ComputationShape); err != nil {
		return p, err
	}
	if p.stride, err = vector("ComputationStride", options.ComputationStride); err != nil {
		return p, err
	}
	if err := positive("ComputationShape", p.shape); err != nil {
		return p, err
	}
	if err := positive("ComputationStride", p.stride); err != nil {
		return p, err
	}
	elsewhere := p.otherMesh(topology)
	if err := p.measure(elsewhere); err != nil {
		return p, err
	}
	if topology.hasMissing() {
		if p.stride != (Coordinates{1, 1, 1, 1}) {
			return p, assignmentError("ComputationStride", "use no stride there", "%v on a slice with %d missing devices",
				p.stride, len(topology.flat)-len(topology.coords))
		}
		p.fit = min(p.fit, len(topology.coords)/product(p.shape))
	}
	if p.replicas < 0 {
		return p, assignmentError("Replicas", "", "%d is negative", p.replicas)
	}
	if p.replicas > p.fit {
		each := ""
		if slices > 1 {
			each = fmt.Sprintf(", on each of %d slices", slices)
		}
		hint := fmt.Sprintf("at most %d do", p.fit*slices)
		if elsewhere != "" {
			hint += "; " + elsewhere
		}
		return p, &AssignmentError{Option: "Replicas", Fit: p.fit * slices, Reason: fmt.Sprintf(
			"%d replicas of shape %v and stride %v do not fit on a mesh of shape %v with %d devices%s",
			p.replicas, p.shape, p.stride, p.mesh, len(topology.coords)/slices, each), Hint: hint}
	}
	return p, p.chooseOrder(options.Order, topology.hasMissing())
}

func vector(option string, values []int) (Coordinates, error) {
	if values == nil {
		return Coordinates{1, 1, 1, 1}, nil
	}
	if len(values) != MeshRank {
		return Coordinates{}, assignmentError(option, "give x, y, z and core", "%v has %d entries", values, len(values))
	}
	return Coordinates(values), nil
}

func positive(option string, v Coordinates) error {
	if slices.Min(v[:]) < 1 {
		return assignmentError(option, "", "%v has an entry below 1", v)
	}
	return nil
}

// otherMesh says which option gives devices without places of their own a mesh on which the replicas
// fit; it is empty for those of a TPU, and if none is found.
func (p *plan) otherMesh(topology Topology) string {
	if topology.name != logicalName {
		return ""
	}
	mesh, rest := p.shape, product(p.mesh)
	for i := range mesh {
		if rest%p.shape[i] != 0 || rest/p.shape[i]%p.stride[i] != 0 {
			return ""
		}
		mesh[i] *= p.stride[i]
		rest /= mesh[i]
	}
	if p.replicas > product(p.mesh)/product(p.shape) {
		return ""
	}
	mesh[0] *= rest * p.slices
	return fmt.Sprintf("these devices have no places of their own: say which mesh they form, such as []int{%d, %d, %d, %d}, in system.Options.MeshShape or tpu.LogicalOptions.MeshShape",
		mesh[0], mesh[1], mesh[2], mesh[3])
}

// measure finds how many replicas fit along each axis. The hint is what to do if a replica does not.
func (p *plan) measure(hint string) error {
	p.fit = 1
	for i := range p.mesh {
		// The first comparison also keeps the product from overflowing.
		if p.shape[i] > p.mesh[i]/p.stride[i] {
			return assignmentError("ComputationShape", hint, "shape %v with stride %v does not fit into the mesh %v: axis %q has %d places",
				p.shape, p.stride, p.mesh, [...]string{"x", "y", "z", "core"}[i], p.mesh[i])
		}
		p.footprint[i] = p.shape[i] * p.stride[i]
		p.room[i] = p.mesh[i] / p.footprint[i] * p.stride[i]
		p.fit *= p.room[i]
	}
	return nil
}

func (p *plan) chooseOrder(order DeviceOrder, missing bool) error {
	possible := p.shape[3] == p.mesh[3] && p.stride == (Coordinates{1, 1, 1, 1}) && p.replicas == product(p.room)
	switch order {
	case AutoOrder:
		p.ring = possible
	case RingOrder:
		if !possible && !missing {
			return assignmentError("Order", "use AUTO or MESH", "RING needs replicas with all %d cores of each chip, no stride, and exactly %d of them",
				p.mesh[3], p.fit)
		}
		p.ring = possible
	case MeshOrder:
	default:
		return assignmentError("Order", "use AutoOrder, RingOrder or MeshOrder", "unknown order %v", order)
	}
	return nil
}

func product(v Coordinates) int { return v[0] * v[1] * v[2] * v[3] }

// walkRings puts replicas along a ring of blocks, and the cores of each along a ring of chips, all
// cores of a chip in a row.
func (p *plan) walkRings(put func(Coordinates)) {
	outer := ring([3]int(p.room[:3]))
	inner := ring([3]int(p.shape[:3]))
	for _, block := range outer {
		for _, chip := range inner {
			for core := range p.mesh[3] {
				put(Coordinates{
					block[0]*p.shape[0] + chip[0],
					block[1]*p.shape[1] + chip[1],
					block[2]*p.shape[2] + chip[2],
					core,
				})
			}
		}
	}
}

// walkMesh puts replicas on a grid as near to a cube as fits, core axis fastest, then x, y, z; the
// cores of each are in row-major order.
func (p *plan) walkMesh(put func(Coordinates)) {
	grid := p.grid()
	for r := range p.replicas {
		var origin Coordinates
		rest := r
		for _, axis := range [...]int{3, 0, 1, 2} {
			at := rest % grid[axis]
			rest /= grid[axis]
			origin[axis] = at/p.stride[axis]*p.footprint[axis] + at%p.stride[axis]
		}
		for k := range product(p.shape) {
			c := rowMajor(k, p.shape)
			for axis := range c {
				c[axis] = origin[axis] + c[axis]*p.stride[axis]
			}
			put(c)
		}
	}
}

// grid shares the replicas among the axes, the tightest axis first; among equals core comes before
// x, y and z.
func (p *plan) grid() (grid Coordinates) {
	axes := []int{3, 0, 1, 2}
	slices.SortStableFunc(axes, func(a, b int) int { return p.room[a] - p.room[b] })
	rest := p.replicas
	for i, axis := range axes {
		grid[axis] = min(ceilRoot(rest, len(axes)-i), p.room[axis])
		rest = (rest + grid[axis] - 1) / grid[axis]
	}
	return grid
}

// ceilRoot returns the least g whose d-th power is at least n.
func ceilRoot(n, d int) int {
	if d == 1 {
		return n
	}
	for g := 1; ; g++ {
		power := 1
		for range d {
			power *= g
		}
		if power >= n {
			return g
		}
	}
}
