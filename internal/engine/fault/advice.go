package fault

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// What to write instead of a call that acts at once, where a step is traced.
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

// NoAggregation returns the error of a replica's write that nothing combines.
func NoAggregation(op string) *errkind.Fault {
	return New(errkind.ValueError, op, "set VariableOptions.Aggregation, or LocalWrites for components that may differ",
		"a replica writes a mirrored variable that aggregates nothing")
}

// NotDistributed returns the error of a sum of what is one value for all replicas.
func NotDistributed(op string) *errkind.Fault {
	return New(errkind.ValueError, op, "give each replica its own value, or use MEAN", "SUM of one value that is not distributed: how often it counts is not known")
}

// Unequal returns the error of a write that would make the components of a mirrored variable
// different.
func Unequal(op string) *errkind.Fault {
	return New(errkind.ValueError, op, "write one value, or create the variable with LocalWrites", "different values for the components of a mirrored variable")
}

// UnknownReduction returns the error of a reduction that is none of the constants.
func UnknownReduction(op string, reduction fmt.Stringer) *errkind.Fault {
	return New(errkind.AssertionError, op, "use Sum or Mean", "unknown reduction %s", reduction)
}

// Traced calls a function that builds graph, which panics with its error, and returns that error.
func Traced[T any](f func() T) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Cause(p)
		}
	}()
	return f(), nil
}

// Cause returns the value of a panic as an error.
func Cause(p any) error {
	if err, ok := p.(error); ok {
		return err
	}
	return fmt.Errorf("panic: %v", p)
}
