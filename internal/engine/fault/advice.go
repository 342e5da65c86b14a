package fault

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Hints of errors for calls that are not allowed while a step is traced, by the purpose of the
// call.
const (
	InsteadOfReading  = "return it from the step, and read it after the run"
	InsteadOfGiving   = "pass it to the step as an argument, or make a constant of it with graph.Const"
	InsteadOfRunning  = "call the step's Go function itself, or run it before or after"
	InsteadOfMaking   = "make it before the step runs"
	InsteadOfMeeting  = "call it before or after the step"
	InsteadOfLoading  = "take the input before the run, and pass it as an argument"
	InsteadOfCopying  = "copy between the store and the devices before or after the run"
	InsteadOfWaiting  = "wait after the run"
	InsteadOfWrapping = "the values of a merge call are wrapped already: return them"
)

// NoAggregation returns an error for the operation op, in which a replica writes a mirrored
// variable that has no aggregation.
func NoAggregation(op string) *errkind.Fault {
	return New(errkind.ValueError, op, "set VariableOptions.Aggregation, or LocalWrites for components that may differ",
		"a replica writes a mirrored variable that aggregates nothing")
}

// NotDistributed returns an error for the reduction op, which computes the sum of one value instead
// of a value for each replica.
func NotDistributed(op string) *errkind.Fault {
	return New(errkind.ValueError, op, "give each replica its own value, or use MEAN",
		"SUM of one value that is not distributed: how often it counts is not known")
}

// Unequal returns an error for the operation op, which writes different values to the copies of a
// mirrored variable.
func Unequal(op string) *errkind.Fault {
	return New(errkind.ValueError, op, "write one value, or create the variable with LocalWrites",
		"different values for the components of a mirrored variable")
}

// UnknownReduction returns an error for the operation op, whose reduction is neither Sum nor Mean.
func UnknownReduction(op string, reduction fmt.Stringer) *errkind.Fault {
	return New(errkind.AssertionError, op, "use Sum or Mean", "unknown reduction %s", reduction)
}

// CatchPanic calls f, a function that builds graph nodes, and converts a panic of f to an error.
func CatchPanic[T any](f func() T) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = FromPanic(p)
		}
	}()
	return f(), nil
}

// FromPanic converts the value of a recovered panic to an error.
func FromPanic(p any) error {
	if err, ok := p.(error); ok {
		return err
	}
	return fmt.Errorf("panic: %v", p)
}
