package sharding

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// wrong returns the error of a value that op cannot take: what is wrong with it, and what to give.
func wrong(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "sharding: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
}
