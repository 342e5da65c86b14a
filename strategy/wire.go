package strategy

import (
	"fmt"

	"reflect"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// wireTypes are the plugin's types of GoMLX's dtypes.
var wireTypes = map[dtypes.DType]pjrt.DType{
	dtypes.Bool: pjrt.Pred,
	dtypes.Int8: pjrt.S8, dtypes.Int16: pjrt.S16, dtypes.Int32: pjrt.S32, dtypes.Int64: pjrt.S64,
	dtypes.Uint8: pjrt.U8, dtypes.Uint16: pjrt.U16, dtypes.Uint32: pjrt.U32, dtypes.Uint64: pjrt.U64,
	dtypes.Float16: pjrt.F16, dtypes.BFloat16: pjrt.BF16, dtypes.Float32: pjrt.F32, dtypes.Float64: pjrt.F64,
	dtypes.Complex64: pjrt.C64, dtypes.Complex128: pjrt.C128,
}

// wireType returns the plugin's type of a dtype. Types of less than a byte do not
// cross a step's border: their host form is packed and cannot be cut.
func wireType(d dtypes.DType) (pjrt.DType, error) {
	wire, ok := wireTypes[d]
	if !ok {
		return wire, fmt.Errorf("strategy: dtype %s cannot be an argument or a result of a step; convert it inside the step", d)
	}
	return wire, nil
}

// toFloat64 returns a tensor's first element as a float64.
func toFloat64(t *tensors.Tensor) (x float64, err error) {
	failed := t.ConstFlatData(func(flat any) {
		v := reflect.ValueOf(flat).Index(0)
		switch {
		case v.CanFloat():
			x = v.Float()
		case v.CanInt():
			x = float64(v.Int())
		default:
			// float16 and bfloat16 are integers to reflect but know their value.
			if f, ok := v.Interface().(interface{ Float32() float32 }); ok {
				x = float64(f.Float32())
			} else if v.CanUint() {
				x = float64(v.Uint())
			} else {
				err = fmt.Errorf("strategy: a %s is no real number", t.DType())
			}
		}
	})
	if failed != nil {
		return 0, fmt.Errorf("strategy: %w", failed)
	}
	return x, err
}
