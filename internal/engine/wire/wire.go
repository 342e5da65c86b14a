package wire

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Of returns the plugin's type of a dtype. Types of less than a byte do not cross a step's border:
// their host form is packed and cannot be cut.
func Of(d dtypes.DType) (pjrt.DType, error) {
	t, err := hostdata.PJRTType(d)
	if err != nil || d.IsPacked() {
		return t, &errkind.Fault{Op: fmt.Sprintf("strategy: dtype %s", d),
			Reason: "it cannot be an argument or a result of a step",
			Hint:   "convert it inside the step", Class: errkind.TypeError}
	}
	return t, nil
}
