package contrib

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Error reports what is wrong with a value, a variable or an argument. A call in the wrong context
// is a *[strategy.ContextError]; a value of another strategy is a *[strategy.StrategyError].
type Error struct {
	// Op is the call, such as "reduce".
	Op string
	// Reason says what is wrong, Hint what to write instead.
	Reason, Hint string
	// Err is the cause, if there is one.
	Err error
	// Class is what Kind returns.
	Class strategy.Kind
}

func (e *Error) Error() string {
	return errkind.Text("contrib: "+e.Op, e.Reason, e.Err, e.Hint)
}

func (e *Error) Unwrap() error { return e.Err }

// Kind returns the exception that TensorFlow 1.9 raises for the same mistake.
func (e *Error) Kind() strategy.Kind { return e.Class }

func fault(kind strategy.Kind, op, hint, reason string, args ...any) *Error {
	return &Error{Op: op, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: kind}
}
