package spmd

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// fault is an error about a step, its signature or the graph that it was traced from.
func fault(subject, reason, hint string) *errkind.Fault {
	return &errkind.Fault{Op: "module:", Subject: subject, Reason: reason, Hint: hint, Class: errkind.InvalidArgumentError}
}

// untraced is an error about a graph that is not this trace's.
func untraced(graph string) error {
	return fault(fmt.Sprintf("graph %q", graph), "it was not compiled on this trace", "make the graph with graph.NewGraph(trace, name), and compile it first")
}

// CollectiveError reports why a collective cannot be traced.
type CollectiveError struct {
	// Op is "all_reduce", "all_gather", "reduce_scatter" or "replica_id".
	Op string
	// Shape is the operand's shape.
	Shape []int
	// Reason says what is wrong, and Hint what to write instead.
	Reason, Hint string
}

// Error returns "module: op of shape: reason; hint".
func (e *CollectiveError) Error() string {
	return errkind.Text(fmt.Sprintf("module: %s of shape %v", e.Op, e.Shape), e.Reason, nil, e.Hint)
}

// Kind returns InvalidArgumentError.
func (*CollectiveError) Kind() errkind.Kind { return errkind.InvalidArgumentError }

// DTypeError reports that an argument or a result of a step has a dtype that stays inside a step.
type DTypeError struct {
	// Role is "argument" or "result", and Name the tensor's name.
	Role, Name string
	DType      dtypes.DType
}

// Error returns "module: role name: reason; hint".
func (e *DTypeError) Error() string {
	return errkind.Text(fmt.Sprintf("module: %s %q", e.Role, e.Name)+" has dtype "+e.DType.String()+
		", whose elements of less than a byte stay inside a step", "", nil, fmt.Sprintf("convert it to %s there", e.wider()))
}

// Kind returns TypeError.
func (*DTypeError) Kind() errkind.Kind { return errkind.TypeError }

// wider is the dtype of a byte that holds the tensor's values.
func (e *DTypeError) wider() dtypes.DType {
	if e.DType == dtypes.Uint4 || e.DType == dtypes.Uint2 {
		return dtypes.Uint8
	}
	return dtypes.Int8
}
