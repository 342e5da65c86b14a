package fault

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Wrap returns an error for the operation op of package strategy, which failed because of cause.
// The hint suggests a correction. It is "" if the text of cause already contains a hint.
func Wrap(op string, cause error, hint string) *errkind.Fault {
	return &errkind.Fault{Op: "strategy: " + op, Hint: hint, Err: cause}
}

// WithIndex adds the index i of the invalid value to the error of an operation on several values.
// If there is only one value, it returns err unchanged.
func WithIndex(i, values int, err error) error {
	if values == 1 {
		return err
	}
	return Wrap(fmt.Sprintf("value %d", i), err, "")
}

// New returns an error of the given kind for an operation of package strategy. reason is a format
// string for args. The hint suggests a correction.
func New(kind errkind.Kind, op, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: "strategy: " + op, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: kind}
}

// ErrOtherStrategy is strategy.ErrOtherStrategy.
var ErrOtherStrategy = errkind.New(errkind.RuntimeError, "strategy: mixing strategies")

// OtherStrategy returns an error for the operation op, whose argument subject belongs to another
// strategy.
func OtherStrategy(op, subject string) *errkind.Fault {
	return &errkind.Fault{Match: ErrOtherStrategy, Op: "strategy: mixing strategies: " + op, Reason: subject +
		" belongs to another strategy",
		Hint: "copy values through the host"}
}
