package strategy

import "github.com/tpustrategy/tpustrategy/errkind"

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

// ContextError reports a call in the wrong context: a cross-replica call in a replica's code, a
// replica's call outside it, or a call that acts at once in a step that is being traced.
type ContextError struct {
	// Op is the call.
	Op string
	// Reason says where the call was made, Hint where it belongs.
	Reason, Hint string
}

// Error names the call, where it was made and where it belongs.
func (e *ContextError) Error() string {
	return errkind.Text("strategy: "+e.Op, e.Reason, nil, e.Hint)
}

// Kind returns RuntimeError.
func (e *ContextError) Kind() Kind { return RuntimeError }

// StrategyError reports that a value, a variable, a function or a scope of one strategy was given
// to another strategy.
type StrategyError struct {
	// Op is the call, Subject names the thing that belongs to the other strategy.
	Op, Subject string
}

// Error names the call and the thing that belongs to another strategy.
func (e *StrategyError) Error() string {
	return errkind.Text("strategy: mixing strategies: "+e.Op, e.Subject+" belongs to another strategy", nil, "copy values through the host")
}

// Kind returns RuntimeError.
func (e *StrategyError) Kind() Kind { return RuntimeError }

// mixed returns the error of something of another strategy that cannot be used here.
func mixed(op, subject string) error { return &StrategyError{Op: op, Subject: subject} }
