package number

import (
	"reflect"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
)

// ReadScalar returns the first element of a tensor as a float64. It returns an error of kind
// TypeError for a dtype that is neither a real nor an integer dtype.
func ReadScalar(t *tensors.Tensor) (x float64, err error) {
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
				err = fault.New(errkind.TypeError, "read a number", "read the tensor with Value",
					"a %s is no real number", t.DType())
			}
		}
	})
	if failed != nil {
		return 0, fault.Wrap("read a number", failed, "")
	}
	return x, err
}
