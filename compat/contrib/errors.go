package contrib

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// fault is the error of a value, a variable or an argument: of the kind that TensorFlow 1.9 raises for
// the same mistake.
func fault(kind errkind.Kind, op, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: "contrib: " + op, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: kind}
}
