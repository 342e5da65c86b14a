package spmd

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
)

func newFault(subject, reason, hint string) *errkind.Fault {
	return &errkind.Fault{Op: "module:", Subject: subject, Reason: reason, Hint: hint,
		Class: errkind.InvalidArgumentError}
}

func untracedGraphError(graph string) error {
	return newFault(fmt.Sprintf("graph %q", graph), "it was not compiled on this trace",
		"make the graph with graph.NewGraph(trace, name), and compile it first")
}

func collectiveError(op string, shape []int, reason, hint string) error {
	return newFault(fmt.Sprintf("%s of shape %v", op, shape), reason, hint)
}

// regionError returns an error about a region of one logical device. devices is the number of
// logical devices of a replica.
func regionError(devices int, reason, hint string) error {
	return &logical.Error{Op: "on", Dim: -1, Devices: devices, Reason: reason, Hint: hint}
}

// packedDTypeError rejects an argument or result with elements of less than a byte.
func packedDTypeError(role, name string, dtype dtypes.DType) error {
	wider := dtypes.Int8 // dtype of one byte with the same values
	if dtype == dtypes.Uint4 || dtype == dtypes.Uint2 {
		wider = dtypes.Uint8
	}
	return &errkind.Fault{Op: fmt.Sprintf(
		"module: %s %q has dtype %s, whose elements of less than a byte stay inside a step", role, name, dtype),
		Hint: fmt.Sprintf("convert it to %s there", wider), Class: errkind.TypeError}
}
