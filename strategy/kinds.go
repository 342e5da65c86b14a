package strategy

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Kind is the class of an error: the exception that TensorFlow raises for the same
// mistake. [KindOf] finds it. It is [errkind.Kind], which has all of them.
type Kind = errkind.Kind

// The kinds that TensorFlow's distribution strategies raise.
const (
	// KindUnknown is the kind of errors from elsewhere.
	KindUnknown = errkind.Unknown
	// ValueError is a value that does not fit.
	ValueError = errkind.ValueError
	// TypeError is a value of the wrong sort or dtype.
	TypeError = errkind.TypeError
	// RuntimeError is a call that does not belong where it was made.
	RuntimeError = errkind.RuntimeError
	// NotImplementedError is what the strategy does not do.
	NotImplementedError = errkind.NotImplementedError
	// AssertionError is a nest, a destination or a value that breaks a
	// precondition.
	AssertionError = errkind.AssertionError
	// InvalidArgumentError is a shape that an op cannot take.
	InvalidArgumentError = errkind.InvalidArgumentError
	// OutOfRangeError is input that has ended.
	OutOfRangeError = errkind.OutOfRangeError
)

// KindOf returns the kind of the first error in err's tree that has one, of whichever
// package: [errkind.Of].
func KindOf(err error) Kind { return errkind.Of(err) }

// Error is the error of a value, a variable or a nest that does not fit: the operation,
// what is wrong, what to write instead, its kind and its cause.
type Error = errkind.Fault

// ContextError is a call in the wrong context: a cross-replica call in a replica's
// code, or the other way round.
type ContextError struct {
	// Op is the call.
	Op string
	// Reason says where it was made, Hint where it belongs.
	Reason, Hint string
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("strategy: %s: %s; %s", e.Op, e.Reason, e.Hint)
}

// Kind is RuntimeError.
func (e *ContextError) Kind() Kind { return RuntimeError }

// StrategyError is a value, a variable, a function or a scope of one strategy that
// met another strategy.
type StrategyError struct {
	// Op is the call and Subject what belongs to the other strategy.
	Op, Subject string
}

func (e *StrategyError) Error() string {
	return fmt.Sprintf("strategy: mixing strategies: %s: %s belongs to another strategy; copy values through the host", e.Op, e.Subject)
}

// Kind is RuntimeError.
func (e *StrategyError) Kind() Kind { return RuntimeError }
