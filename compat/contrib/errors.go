package contrib

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// fault is the error of a value, a variable or an argument: of the kind that TensorFlow 1.9 raises for
// the same mistake.
func fault(kind errkind.Kind, op, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: "contrib: " + op, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: kind}
}

// misplaced is the error of a call that does not belong where it was made.
func misplaced(op, reason, hint string) error {
	return &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op, Reason: reason, Hint: hint}
}

// otherStrategy is the error of an operation that was given something of another strategy.
func otherStrategy(op, subject string) error {
	return &strategy.Error{Match: strategy.ErrOtherStrategy, Op: "strategy: mixing strategies: " + op, Reason: subject + " belongs to another strategy",
		Hint: "copy values through the host"}
}
