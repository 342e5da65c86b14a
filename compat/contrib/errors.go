package contrib

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// newFault returns an error of the kind that TensorFlow 1.9 raises for the same mistake.
func newFault(kind errkind.Kind, op, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: "contrib: " + op, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: kind}
}

func contextError(op, reason, hint string) error {
	return &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op, Reason: reason, Hint: hint}
}

func otherStrategyError(op, subject string) error {
	return &strategy.Error{Match: strategy.ErrOtherStrategy, Op: "strategy: mixing strategies: " + op,
		Reason: subject + " belongs to another strategy",
		Hint:   "copy values through the host"}
}
