package tpu

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// DeviceOrder specifies in which order replicas and their cores are placed in the mesh. It
// corresponds to TensorFlow's DeviceOrderMode.
type DeviceOrder int

const (
	// AutoOrder is [RingOrder] if it is possible, and [MeshOrder] otherwise.
	AutoOrder DeviceOrder = iota
	// RingOrder follows rings of neighboring chips, so that consecutive replicas and consecutive
	// cores of a replica are connected directly. It requires replicas that fill the mesh, with all
	// cores of a chip in one replica and without stride.
	RingOrder
	// MeshOrder follows the rows of the mesh: core fastest, then x, y and z.
	MeshOrder
)

// String returns "AUTO", "RING" or "MESH".
func (o DeviceOrder) String() string { return enum.Name(o, "AUTO", "RING", "MESH") }

// AssignmentOptions specifies the placement of replicas for [BuildDeviceAssignment]. The zero value
// specifies one replica with one core.
type AssignmentOptions struct {
	// ComputationShape is the block of cores of each replica, in x, y, z and core. Its product is
	// the number of logical cores. If nil, it is [1, 1, 1, 1].
	ComputationShape []int
	// ComputationStride is the distance between the cores of a replica along each axis. Cores in
	// between belong to other replicas. If nil, it is [1, 1, 1, 1].
	ComputationStride []int
	// Replicas is the number of replicas. 0 means 1. [AssignmentOptions.MaxReplicas] returns the
	// maximum.
	Replicas int
	// Order is the order of replicas and cores in the mesh.
	Order DeviceOrder
	// BySlice assigns the same number of replicas to each slice of a multislice topology: with R
	// replicas and S slices, all logical cores of replica r are on slice r/(R/S), in the same order as
	// on a single slice. Then only communication between replicas, such as the reduction of gradients,
	// uses the data-center network. If false, TensorFlow's algorithm is applied to the mesh of all
	// slices, and replicas may span slices.
	BySlice bool
}

// BuildDeviceAssignment assigns replicas to the cores of a slice. It returns the same assignment as
// TensorFlow's tf.tpu.experimental.DeviceAssignment.build (function device_assignment). Invalid
// options are an [*AssignmentError]. The options are checked in this order: shape, stride,
// footprint (shape times stride) compared with the mesh, number of replicas, order.
//
// If devices of the slice are missing, cores are assigned in task order. Then only the product of
// ComputationShape is used, and strides are an error.
//
// The cost is linear in the number of assigned cores.
func BuildDeviceAssignment(topology Topology, options AssignmentOptions) (DeviceAssignment, error) {
	plan, err := newPlan(topology, options)
	if err != nil {
		return DeviceAssignment{}, err
	}
	a := DeviceAssignment{topology: topology, replicas: plan.replicas * plan.slices, cores: product(plan.shape)}
	a.deviceIndices = make([]int32, 0, a.replicas*a.cores)
	if topology.hasMissing() {
		for k := range a.replicas * a.cores {
			a.deviceIndices = append(a.deviceIndices, int32(k))
		}
		return a, nil
	}
	for slice := range plan.slices {
		assign := func(c Coordinates) {
			c[0] += slice * plan.mesh[0]
			a.deviceIndices = append(a.deviceIndices, topology.deviceByPosition[topology.meshIndex(c)])
		}
		if plan.useRings {
			plan.assignInRingOrder(assign)
		} else {
			plan.assignInMeshOrder(assign)
		}
	}
	return a, nil
}

// assignmentPlan contains validated options, and values that are computed from the options.
type assignmentPlan struct {
	mesh, shape, stride Coordinates
	footprint           Coordinates // extent of a block of cores including its gaps
	capacity            Coordinates // replicas that fit along each axis
	maxReplicas         int
	replicas            int
	useRings            bool
	slices              int // number of slices; the plan is for each of them
}

func newPlan(topology Topology, options AssignmentOptions) (assignmentPlan, error) {
	slices := 1
	if options.BySlice {
		slices = topology.NumSlices()
	}
	topology, options, err := perSliceOptions(topology, options)
	if err != nil {
		return assignmentPlan{}, err
	}
	p := assignmentPlan{mesh: topology.mesh, replicas: options.Replicas, slices: slices}
	if p.replicas == 0 {
		p.replicas = 1
	}
	if topology.mesh == (Coordinates{}) {
		return p, topologyError("MeshShape", "create it with NewTopology", "the topology is empty")
	}
	if p.shape, err = parseCoordinates("ComputationShape", options.ComputationShape); err != nil {
		return p, err
	}
	if p.stride, err = parseCoordinates("ComputationStride", options.ComputationStride); err != nil {
		return p, err
	}
	if err := checkPositive("ComputationShape", p.shape); err != nil {
		return p, err
	}
	if err := checkPositive("ComputationStride", p.stride); err != nil {
		return p, err
	}
	meshHint := p.suggestMesh(topology)
	if err := p.computeCapacity(meshHint); err != nil {
		return p, err
	}
	if topology.hasMissing() {
		if p.stride != (Coordinates{1, 1, 1, 1}) {
			return p, assignmentError("ComputationStride", "remove the stride", "%v on a slice with %d missing devices",
				p.stride, len(topology.deviceByPosition)-len(topology.coords))
		}
		p.maxReplicas = min(p.maxReplicas, len(topology.coords)/product(p.shape))
	}
	if p.replicas < 0 {
		return p, assignmentError("Replicas", "", "%d is negative", p.replicas)
	}
	if p.replicas > p.maxReplicas {
		perSlice := ""
		if slices > 1 {
			perSlice = fmt.Sprintf(", on each of %d slices", slices)
		}
		hint := fmt.Sprintf("at most %d replicas fit", p.maxReplicas*slices)
		if meshHint != "" {
			hint += "; " + meshHint
		}
		return p, &AssignmentError{Option: "Replicas", MaxReplicas: p.maxReplicas * slices, Reason: fmt.Sprintf(
			"%d replicas of shape %v and stride %v do not fit on a mesh of shape %v with %d devices%s",
			p.replicas, p.shape, p.stride, p.mesh, len(topology.coords)/slices, perSlice), Hint: hint}
	}
	return p, p.chooseOrder(options.Order, topology.hasMissing())
}

// parseCoordinates converts the value of an option to coordinates. nil means [1, 1, 1, 1]. option
// is the name of the option in errors.
func parseCoordinates(option string, values []int) (Coordinates, error) {
	if values == nil {
		return Coordinates{1, 1, 1, 1}, nil
	}
	if len(values) != MeshRank {
		return Coordinates{}, assignmentError(option, "pass x, y, z and core", "%v has %d entries", values, len(values))
	}
	return Coordinates(values), nil
}

func checkPositive(option string, v Coordinates) error {
	if slices.Min(v[:]) < 1 {
		return assignmentError(option, "", "%v has an entry below 1", v)
	}
	return nil
}

// suggestMesh returns a hint with a mesh shape on which the replicas fit. It applies only to
// devices without coordinates. For TPU devices, or if there is no such shape, it returns "".
func (p *assignmentPlan) suggestMesh(topology Topology) string {
	if topology.name != logicalTopologyName {
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
	return fmt.Sprintf("these devices have no coordinates: set a mesh such as []int{%d, %d, %d, %d} "+
		"in system.Options.MeshShape or tpu.LogicalOptions.MeshShape", mesh[0], mesh[1], mesh[2], mesh[3])
}

// computeCapacity computes the number of replicas that fit along each axis of the mesh. If no
// replica fits, it returns an error with the given hint.
func (p *assignmentPlan) computeCapacity(hint string) error {
	p.maxReplicas = 1
	for i := range p.mesh {
		// The first comparison also keeps the product from overflowing.
		if p.shape[i] > p.mesh[i]/p.stride[i] {
			return assignmentError("ComputationShape", hint,
				"shape %v with stride %v does not fit into the mesh %v: axis %q has size %d",
				p.shape, p.stride, p.mesh, [...]string{"x", "y", "z", "core"}[i], p.mesh[i])
		}
		p.footprint[i] = p.shape[i] * p.stride[i]
		p.capacity[i] = p.mesh[i] / p.footprint[i] * p.stride[i]
		p.maxReplicas *= p.capacity[i]
	}
	return nil
}

func (p *assignmentPlan) chooseOrder(order DeviceOrder, missing bool) error {
	possible := p.shape[3] == p.mesh[3] && p.stride == (Coordinates{1, 1, 1, 1}) && p.replicas == product(p.capacity)
	switch order {
	case AutoOrder:
		p.useRings = possible
	case RingOrder:
		if !possible && !missing {
			return assignmentError("Order", "use AUTO or MESH",
				"RING requires exactly %d replicas, without stride and with all %d cores of each chip", p.maxReplicas, p.mesh[3])
		}
		p.useRings = possible
	case MeshOrder:
	default:
		return assignmentError("Order", "use AutoOrder, RingOrder or MeshOrder", "unknown order %v", order)
	}
	return nil
}

func product(v Coordinates) int { return v[0] * v[1] * v[2] * v[3] }

// assignInRingOrder assigns the blocks of chips to replicas in the order of a ring, and the chips
// within a block to the cores of the replica in the order of another ring. The cores of a chip are
// consecutive.
func (p *assignmentPlan) assignInRingOrder(assign func(Coordinates)) {
	outer := ringOrder([3]int(p.capacity[:3]))
	inner := ringOrder([3]int(p.shape[:3]))
	for _, block := range outer {
		for _, chip := range inner {
			for core := range p.mesh[3] {
				assign(Coordinates{
					block[0]*p.shape[0] + chip[0],
					block[1]*p.shape[1] + chip[1],
					block[2]*p.shape[2] + chip[2],
					core,
				})
			}
		}
	}
}

// assignInMeshOrder assigns replicas along a grid that is as close to a cube as possible, with the
// core axis fastest, then x, y and z. The cores of each replica are in row-major order.
func (p *assignmentPlan) assignInMeshOrder(assign func(Coordinates)) {
	grid := p.replicaGrid()
	for r := range p.replicas {
		var origin Coordinates
		rest := r
		for _, axis := range [...]int{3, 0, 1, 2} {
			at := rest % grid[axis]
			rest /= grid[axis]
			origin[axis] = at/p.stride[axis]*p.footprint[axis] + at%p.stride[axis]
		}
		for k := range product(p.shape) {
			c := coordinatesAt(k, p.shape)
			for axis := range c {
				c[axis] = origin[axis] + c[axis]*p.stride[axis]
			}
			assign(c)
		}
	}
}

// replicaGrid returns the number of replicas along each axis of the mesh. It distributes the
// replicas evenly, starting with the axis that has the smallest capacity. Axes of equal capacity
// are processed in the order core, x, y, z.
func (p *assignmentPlan) replicaGrid() (grid Coordinates) {
	axes := []int{3, 0, 1, 2}
	slices.SortStableFunc(axes, func(a, b int) int { return p.capacity[a] - p.capacity[b] })
	rest := p.replicas
	for i, axis := range axes {
		grid[axis] = min(ceilRoot(rest, len(axes)-i), p.capacity[axis])
		rest = (rest + grid[axis] - 1) / grid[axis]
	}
	return grid
}

// ceilRoot returns the d-th root of n, rounded up.
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
