package number

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// PluginDType converts a GoMLX dtype to the dtype of the PJRT plugin. It returns an error of kind
// TypeError for a dtype that cannot be an argument or a result of a step. These include dtypes of
// less than a byte, whose packed elements cannot be split into shards on the host.
func PluginDType(d dtypes.DType) (pjrt.DType, error) {
	t, err := hostdata.PJRTType(d)
	if err != nil || d.IsPacked() {
		return t, &errkind.Fault{Op: fmt.Sprintf("strategy: dtype %s", d),
			Reason: "it cannot be an argument or a result of a step",
			Hint:   "convert it inside the step", Class: errkind.TypeError}
	}
	return t, nil
}
