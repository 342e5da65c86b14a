package sharding

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// invalidError returns a ValueError for an argument of the operation op. The format describes the
// problem and hint describes the correction.
func invalidError(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "sharding: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint,
		Class: errkind.ValueError}
}
