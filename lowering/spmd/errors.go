package spmd

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
)

// fault returns an error about a step, its signature or its graph.
func fault(subject, reason, hint string) *errkind.Fault {
	return &errkind.Fault{Op: "module:", Subject: subject, Reason: reason, Hint: hint, Class: errkind.InvalidArgumentError}
}

// untraced returns an error about a graph of another trace.
func untraced(graph string) error {
	return fault(fmt.Sprintf("graph %q", graph), "it was not compiled on this trace", "make the graph with graph.NewGraph(trace, name), and compile it first")
}

// uncollected returns an error about a collective that cannot be traced for an operand of the
// shape.
func uncollected(op string, shape []int, reason, hint string) error {
	return fault(fmt.Sprintf("%s of shape %v", op, shape), reason, hint)
}

// misplaced returns an error about a region on one of the given number of logical devices.
func misplaced(devices int, reason, hint string) error {
	return &logical.Error{Op: "on", Dim: -1, Devices: devices, Reason: reason, Hint: hint}
}

// packed returns an error about an argument or a result with a dtype that is only possible inside a
// step.
func packed(role, name string, dtype dtypes.DType) error {
	wider := dtypes.Int8 // dtype of one byte with the same values
	if dtype == dtypes.Uint4 || dtype == dtypes.Uint2 {
		wider = dtypes.Uint8
	}
	return &errkind.Fault{Op: fmt.Sprintf("module: %s %q has dtype %s, whose elements of less than a byte stay inside a step", role, name, dtype),
		Hint: fmt.Sprintf("convert it to %s there", wider), Class: errkind.TypeError}
}
