package logical

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
)

// Target is implemented by graph backends that support logical devices, such as the backend of
// package lowering/spmd. Annotating a node of a graph with another backend is an error.
type Target interface {
	region.Target
	// LogicalDevices returns the number of logical devices of a replica.
	LogicalDevices() int
	// Annotate adds an op that places x to the graph, and returns its node. The argument adjoint is
	// true if x is the gradient of an annotated tensor; in this case the ops that read x are
	// assigned to the device, instead of the ops that compute x. The function gradient computes the
	// gradient of x from the gradient of the node.
	Annotate(x *graph.Node, a Annotation, adjoint bool, gradient func(v *graph.Node) *graph.Node) *graph.Node
	// BeginRegion starts a region: all ops that are traced until EndRegion run only on the given
	// logical device.
	BeginRegion(device int) error
	EndRegion()
	// InRegion reports whether tracing is between BeginRegion and EndRegion.
	InRegion() bool
}

// Assign computes x on logical device k of the replica and returns x as a node, like TensorFlow's
// experimental_assign_to_logical_device. Device k runs the op of x, all earlier ops whose results
// no other op reads, and the gradients of these ops. The other logical devices skip these ops and
// receive x if they use it, at the cost of transferring x over the interconnect. Consecutive ops on
// the same device transfer nothing in between.
//
// Assign has no effect if every logical device has x anyway: if x is an argument, a variable, a
// constant, the result of a collective, or a reshape of one of these. An op on split tensors keeps
// its split, and its result is then gathered on every device. Random ops and ops inside a loop body
// or branch always run on all devices. If a tensor is assigned more than once, the first assignment
// is used. To run several ops on one device independent of the readers of their results, use
// [OnDevice].
//
// Devices are numbered from 0. Assign panics with an [*Error] if the replica does not have device
// k.
func Assign(x *graph.Node, device int) *graph.Node {
	return applyAnnotation("assign", x, AssignTo(device))
}

// Replicate returns x with a copy on every logical device of the replica, like TensorFlow's
// experimental_replicate_to_logical_devices. The gradient is replicated, too.
func Replicate(x *graph.Node) *graph.Node { return applyAnnotation("replicate", x, Replicated()) }

// Split returns x split over the logical devices of the replica, like TensorFlow's
// experimental_split_to_logical_devices. Dimension i is split into parts[i] shards; 1 means no
// split. parts needs one entry for each dimension, each entry must divide its dimension, and their
// product must be the number of logical devices. Otherwise Split panics with an [*Error]. The
// gradient is split in the same way.
func Split(x *graph.Node, parts ...int) *graph.Node {
	return applyAnnotation("split", x, SplitInto(parts...))
}

// SplitOver returns x split over named logical axes of the replica, like JAX's
// with_sharding_constraint. dims has one entry for each dimension of x: "-" or "" for a dimension
// that is not split, the name of an axis, or several names joined by "+", slowest first. Each axis
// can be used once. x is replicated over axes that are not named: with the axes model=2 and
// sequence=2, SplitOver(x, "-", "model") keeps two copies of each half of the columns.
//
// The number of devices along the axes of a dimension must divide the dimension. If it does not, or
// if an axis is unknown, SplitOver panics with an [*Error] that contains the dimension. The
// gradient is split in the same way.
func SplitOver(x *graph.Node, dims ...string) *graph.Node {
	return applyAnnotation("split", x, SplitOverAxes(dims...))
}

// Apply applies the annotation to x, like Assign, Replicate, Split or SplitOver. If the annotation
// has kind [KindNone], Apply returns x.
func Apply(x *graph.Node, a Annotation) *graph.Node {
	if a.kind == KindNone {
		return x
	}
	return applyAnnotation(a.String(), x, a)
}

func applyAnnotation(op string, x *graph.Node, a Annotation) *graph.Node {
	return annotateNode(op, x, a, false)
}

func annotateNode(op string, x *graph.Node, a Annotation, adjoint bool) *graph.Node {
	target := requireTarget(op, x)
	if err := a.ValidateOn(target.LogicalMesh(), "", x.Shape().Dimensions); err != nil {
		panic(err)
	}
	if target.InRegion() {
		panic(&Error{Op: op, Shape: x.Shape().Dimensions, Dim: -1, Devices: target.LogicalDevices(),
			Reason: "called inside a region that runs on one logical device",
			Hint:   "annotate before or after the OnDevice region"})
	}
	return target.Annotate(x, a, adjoint, func(v *graph.Node) *graph.Node {
		return annotateNode(op, v, a, !adjoint)
	})
}

// requireTarget returns the backend of x's graph as a Target. It panics with an [*Error] if x is
// nil or the backend has no logical devices.
func requireTarget(op string, x *graph.Node) Target {
	if x == nil {
		panic(&Error{Op: op, Dim: -1, Reason: "the node is nil", Hint: "pass a node of the step"})
	}
	g := x.Graph()
	target, ok := g.Backend().(Target)
	if !ok {
		panic(&Error{Op: op, Shape: x.Shape().Dimensions, Dim: -1,
			Reason: fmt.Sprintf("a graph of backend %q has no logical devices", g.Backend().Name()),
			Hint:   "trace the step through a strategy"})
	}
	return target
}
