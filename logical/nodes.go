package logical

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
)

// Target is the interface of a graph's backend that has logical devices. The trace of package
// lowering/spmd implements it. Annotating a node of another backend is an error.
type Target interface {
	region.Target
	// LogicalDevices returns the number of logical devices of a replica.
	LogicalDevices() int
	// Annotate adds an op to the graph of x, which places x, and returns its node. adjoint is true if
	// x is the adjoint of an annotated tensor: the ops that read x then belong to the tensor's device,
	// as the ops that make the tensor do. gradient makes the adjoint of x from that of the node.
	Annotate(x *graph.Node, a Annotation, adjoint bool, gradient func(v *graph.Node) *graph.Node) *graph.Node
	// BeginRegion and EndRegion bracket the ops that run on one logical device.
	BeginRegion(device int) error
	EndRegion()
	// InRegion reports whether ops that are traced now belong to a region.
	InRegion() bool
}

// Assign makes x on logical device k of the replica alone, as experimental_assign_to_logical_device
// does, and returns x as a node to go on with. Device k runs the op that makes x, the ops before it
// whose results no other op reads, and the ops of their gradients. The other logical devices skip
// these ops and receive x where they use it, which costs x's bytes on the interconnect. Consecutive
// ops that are assigned to one device send nothing in between.
//
// Assign moves nothing if every logical device has the whole of x in any case: if x is an argument,
// a variable, a constant, the result of a collective, or one of these reshaped. An op on split
// tensors stays in parts, and x becomes whole on every device. Random numbers, and ops in the body
// of a loop or in a branch, run on all devices. The first assignment of a tensor counts. To run
// several ops on one device, whichever ops read their results, use [On].
//
// Assign panics with an [*Error] if the replica has no device k; devices count from 0.
func Assign(x *graph.Node, k int) *graph.Node { return annotate("assign", x, AssignTo(k)) }

// Replicate returns x with a whole copy on every logical device of the replica, as
// experimental_replicate_to_logical_devices does. The gradient is replicated too.
func Replicate(x *graph.Node) *graph.Node { return annotate("replicate", x, Replicated()) }

// Split returns x cut into parts over the logical devices of the replica, as
// experimental_split_to_logical_devices does: dimension i is cut into parts[i] pieces, 1 for a
// dimension that stays whole. parts has one number for each dimension, each number divides its
// dimension, and the product of the numbers is the number of logical devices; otherwise Split
// panics with an [*Error] that names the dimension. The gradient is cut the same way.
func Split(x *graph.Node, parts ...int) *graph.Node {
	return annotate("split", x, SplitInto(parts...))
}

// SplitOver returns x split over named logical axes of the replica, as JAX's
// with_sharding_constraint does. dims has one entry for each dimension of x: "" for a dimension
// that stays whole, the name of an axis, or names with commas between them, the slowest axis first.
// An axis appears once at most. Over the axes that no entry names, x is replicated: on a replica of
// the axes model=2 and sequence=2, SplitOver(x, "", "model") leaves two copies of each half of the
// columns.
//
// The product of the sizes of a dimension's axes divides the dimension. Otherwise, and for an axis
// that the replica lacks, SplitOver panics with an [*Error] that names the dimension. The gradient
// is split the same way.
func SplitOver(x *graph.Node, dims ...string) *graph.Node { return annotate("split", x, Over(dims...)) }

// Apply annotates x with a value, as Assign, Replicate, Split or SplitOver does. It returns x for
// an annotation of kind [None].
func Apply(x *graph.Node, a Annotation) *graph.Node {
	if a.kind == None {
		return x
	}
	return annotate(a.String(), x, a)
}

func annotate(op string, x *graph.Node, a Annotation) *graph.Node { return place(op, x, a, false) }

func place(op string, x *graph.Node, a Annotation, adjoint bool) *graph.Node {
	target := targetOf(op, x)
	if err := a.ValidateOn(target.LogicalMesh(), "", x.Shape().Dimensions); err != nil {
		panic(err)
	}
	if target.InRegion() {
		panic(&Error{Op: op, Shape: x.Shape().Dimensions, Dim: -1, Devices: target.LogicalDevices(),
			Reason: "inside a region that runs on one logical device",
			Hint:   "annotate before or after the On region"})
	}
	return target.Annotate(x, a, adjoint, func(v *graph.Node) *graph.Node {
		return place(op, v, a, !adjoint)
	})
}

// targetOf returns the target of a node's graph, or panics with an error that says why there is
// none.
func targetOf(op string, x *graph.Node) Target {
	if x == nil {
		panic(&Error{Op: op, Dim: -1, Reason: "a nil node", Hint: "pass a node of the step"})
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
