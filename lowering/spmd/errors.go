package spmd

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
)

// fault is an error about a step, its signature or the graph that it was traced from.
func fault(subject, reason, hint string) *errkind.Fault {
	return &errkind.Fault{Op: "module:", Subject: subject, Reason: reason, Hint: hint, Class: errkind.InvalidArgumentError}
}

// untraced is an error about a graph that is not this trace's.
func untraced(graph string) error {
	return fault(fmt.Sprintf("graph %q", graph), "it was not compiled on this trace", "make the graph with graph.NewGraph(trace, name), and compile it first")
}

// uncollected says why a collective of an operand of a shape cannot be traced.
func uncollected(op string, shape []int, reason, hint string) error {
	return fault(fmt.Sprintf("%s of shape %v", op, shape), reason, hint)
}

// misplaced says why a region on one of so many logical devices cannot be.
func misplaced(devices int, reason, hint string) error {
	return &logical.Error{Op: "on", Dim: -1, Devices: devices, Reason: reason, Hint: hint}
}

// packed is the error of an argument or a result of a step whose dtype stays inside a step.
func packed(role, name string, dtype dtypes.DType) error {
	wider := dtypes.Int8 // of a byte, with the same values
	if dtype == dtypes.Uint4 || dtype == dtypes.Uint2 {
		wider = dtypes.Uint8
	}
	return &errkind.Fault{Op: fmt.Sprintf("module: %s %q has dtype %s, whose elements of less than a byte stay inside a step", role, name, dtype),
		Hint: fmt.Sprintf("convert it to %s there", wider), Class: errkind.TypeError}
}
