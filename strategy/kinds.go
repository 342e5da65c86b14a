package strategy

import (
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// Kind is the class of an error: the exception that TensorFlow raises for the same mistake.
// [KindOf] finds it. Package errkind has all kinds.
type Kind = errkind.Kind

// The kinds that TensorFlow's distribution strategies raise.
const (
	// KindUnknown is the kind of an error that none of this module's packages made.
	KindUnknown = errkind.Unknown
	// ValueError is the kind for a value that does not fit.
	ValueError = errkind.ValueError
	// TypeError is the kind for a value of the wrong type or dtype.
	TypeError = errkind.TypeError
	// RuntimeError is the kind for a call in a place or a state where it is not allowed.
	RuntimeError = errkind.RuntimeError
	// NotImplementedError is the kind for an operation that the strategy does not have.
	NotImplementedError = errkind.NotImplementedError
	// AssertionError is the kind for a nest, a destination or a value that breaks a precondition.
	AssertionError = errkind.AssertionError
	// InvalidArgumentError is the kind for a shape that an op cannot take.
	InvalidArgumentError = errkind.InvalidArgumentError
	// OutOfRangeError is the kind for input that has ended.
	OutOfRangeError = errkind.OutOfRangeError
)

// KindOf returns the kind of the first error in err's tree that has a kind, as [errkind.Of] does.
func KindOf(err error) Kind { return errkind.Of(err) }

// Error reports a value, a variable or a nest that does not fit: the operation, what is wrong, what
// to write instead, the kind and the cause.
type Error = errkind.Fault

var (
	// ErrContext is matched by the error of a call in the wrong context: a cross-replica call in a
	// replica's code, a replica's call outside it, or a call that acts at once in a step that is
	// being traced. The error is an *[Error], whose Hint says where the call belongs.
	ErrContext = errkind.New(RuntimeError, "strategy: the wrong context")
	// ErrOtherStrategy is matched by the error of a value, a variable, a function or a scope of one
	// strategy that was given to another strategy.
	ErrOtherStrategy = fault.ErrOtherStrategy
)
