package fault

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Of returns an error for an operation of the strategy that failed with a cause. The hint is a
// correction, or "" if the cause contains one.
func Of(op string, cause error, hint string) *errkind.Fault {
	return &errkind.Fault{Op: "strategy: " + op, Hint: hint, Err: cause}
}

// At adds the index i of a value to its error, if there are several values.
func At(i, values int, err error) error {
	if values == 1 {
		return err
	}
	return Of(fmt.Sprintf("value %d", i), err, "")
}

// New returns an error for an operation of the strategy. The hint is the correction. reason and args
// format the reason.
func New(kind errkind.Kind, op, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: "strategy: " + op, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: kind}
}

// ErrOtherStrategy is strategy.ErrOtherStrategy.
var ErrOtherStrategy = errkind.New(errkind.RuntimeError, "strategy: mixing strategies")

// OtherStrategy returns an error for an argument that belongs to another strategy.
func OtherStrategy(op, subject string) *errkind.Fault {
	return &errkind.Fault{Match: ErrOtherStrategy, Op: "strategy: mixing strategies: " + op, Reason: subject +
		" belongs to another strategy",
		Hint: "copy values through the host"}
}
