// Package wire knows the plugin's types of GoMLX's dtypes.
package wire

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// types are the plugin's types of GoMLX's dtypes.
var types = map[dtypes.DType]pjrt.DType{
	dtypes.Bool: pjrt.Pred,
	dtypes.Int8: pjrt.S8, dtypes.Int16: pjrt.S16, dtypes.Int32: pjrt.S32, dtypes.Int64: pjrt.S64,
	dtypes.Uint8: pjrt.U8, dtypes.Uint16: pjrt.U16, dtypes.Uint32: pjrt.U32, dtypes.Uint64: pjrt.U64,
	dtypes.Float16: pjrt.F16, dtypes.BFloat16: pjrt.BF16, dtypes.Float32: pjrt.F32, dtypes.Float64: pjrt.F64,
	dtypes.Complex64: pjrt.C64, dtypes.Complex128: pjrt.C128,
}

// Of returns the plugin's type of a dtype. Types of less than a byte do not cross a step's border:
// their host form is packed and cannot be cut.
func Of(d dtypes.DType) (pjrt.DType, error) {
	wire, ok := types[d]
	if !ok {
		return wire, &errkind.Fault{Op: fmt.Sprintf("strategy: dtype %s", d), Reason: "it cannot be an argument or a result of a step",
			Hint: "convert it inside the step", Class: errkind.TypeError}
	}
	return wire, nil
}
