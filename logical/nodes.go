package logical

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
)

// Target is what a graph's backend implements so that the node functions of this
// package reach it. The lowering's trace is the one implementation; a graph of
// another backend has no logical devices, and annotating it is an error.
type Target interface {
	// LogicalDevices is the number of logical devices of a replica.
	LogicalDevices() int
	// Next says what the next identity op traced into the graph stands for.
	Next(op Op)
	// BeginRegion and EndRegion bracket ops that run on one logical device.
	BeginRegion(device int) error
	EndRegion()
	// InRegion reports whether ops traced now belong to a region.
	InRegion() bool
}

// Op is what an identity op of the graph stands for in the lowered program.
type Op struct {
	Kind OpKind
	// Annotation is set for OpAnnotate. Adjoint says that the operand is the adjoint
	// of an annotated tensor: what is made from it then belongs to the place, as what
	// makes the tensor does.
	Annotation Annotation
	Adjoint    bool
	// Slot holds a value from OpSave for OpLoad and OpZeros.
	Slot *Slot
}

// OpKind tells ops apart.
type OpKind int

const (
	// OpAnnotate constrains the operand by the annotation.
	OpAnnotate OpKind = iota + 1
	// OpSave is the operand itself, kept in the slot.
	OpSave
	// OpLoad is the slot's value, whatever the operand.
	OpLoad
	// OpZeros is zeros of the slot's shape, whatever the operand.
	OpZeros
)

// Slot carries a value of the lowered program past the graph's edges. Value
// belongs to the target.
type Slot struct{ Value any }

// Assign makes x on logical device k of the replica alone: the op that makes x runs
// there, and with it the ops before it that nothing else reads and the ops of its
// gradient. The other logical devices skip them and receive x where they use it,
// which costs its bytes on the interconnect; ops that are assigned to the same device
// one after another send nothing in between. It returns x, as a node to go on with.
//
// Nothing moves where x is whole on every logical device anyway: an argument, a
// variable, a constant, the result of a collective, or one of these reshaped. An op on
// split tensors stays in parts, and x then becomes whole on every device; random
// numbers, and ops in the body of a loop or in a branch, are made on all devices. The
// first assignment of a tensor counts. To run several ops on one device whatever reads
// them, use [On].
//
// Like all functions on nodes it panics with an [*Error], here if the replica has no
// device k; devices count from 0.
func Assign(x *graph.Node, k int) *graph.Node { return annotate("assign", x, AssignTo(k)) }

// Replicate returns x with a whole copy on every logical device of the replica.
// The gradient is replicated too.
func Replicate(x *graph.Node) *graph.Node { return annotate("replicate", x, Replicated()) }

// Split returns x cut into parts over the logical devices of the replica:
// dimension i into parts[i] pieces, 1 for a dimension that stays whole. There is
// one number a dimension, each divides its dimension, and their product is the
// number of logical devices; otherwise it panics with an [*Error] that names the
// dimension. The gradient is cut the same way.
func Split(x *graph.Node, parts ...int) *graph.Node {
	return annotate("split", x, SplitInto(parts...))
}

// Apply annotates x by a value: what Assign, Replicate and Split do. None
// returns x.
func Apply(x *graph.Node, a Annotation) *graph.Node {
	if a.kind == None {
		return x
	}
	return annotate(a.String(), x, a)
}

func annotate(op string, x *graph.Node, a Annotation) *graph.Node { return place(op, x, a, false) }

func place(op string, x *graph.Node, a Annotation, adjoint bool) *graph.Node {
	target := targetOf(op, x)
	if err := a.Validate("", x.Shape().Dimensions, target.LogicalDevices()); err != nil {
		panic(err)
	}
	if target.InRegion() {
		panic(&Error{Op: op, Shape: x.Shape().Dimensions, Dim: -1, Devices: target.LogicalDevices(),
			Reason: "inside a region that runs on one logical device",
			Hint:   "annotate before or after the On region"})
	}
	target.Next(Op{Kind: OpAnnotate, Annotation: a, Adjoint: adjoint})
	return graph.IdentityWithCustomGradient(x, func(_, v *graph.Node) *graph.Node {
		return place(op, v, a, !adjoint)
	})
}

// targetOf returns the target of a node's graph, or panics with an error that
// says why there is none.
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
