// Package fault makes the errors of package strategy and of the packages that stand on it.
package fault

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Of returns the error of an operation of the strategy that failed for a cause. The hint says what
// to do where the cause does not.
func Of(op string, cause error, hint string) *errkind.Fault {
	return &errkind.Fault{Op: "strategy: " + op, Hint: hint, Err: cause}
}

// At says which of several values an error is of: number i of them, from 0.
func At(i, values int, err error) error {
	if values == 1 {
		return err
	}
	return Of(fmt.Sprintf("value %d", i), err, "")
}

// New returns the error of an operation of the strategy: its kind, the operation, what to write
// instead, and what is wrong as a format and its arguments.
func New(kind errkind.Kind, op, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: "strategy: " + op, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: kind}
}

// ErrOtherStrategy is strategy.ErrOtherStrategy.
var ErrOtherStrategy = errkind.New(errkind.RuntimeError, "strategy: mixing strategies")

// OtherStrategy returns the error of an operation that was given something of another strategy.
func OtherStrategy(op, subject string) *errkind.Fault {
	return &errkind.Fault{Match: ErrOtherStrategy, Op: "strategy: mixing strategies: " + op, Reason: subject + " belongs to another strategy",
		Hint: "copy values through the host"}
}
