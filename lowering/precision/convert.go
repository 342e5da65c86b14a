package precision

import (
	"cmp"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
)

// convertTensor returns a copy of a host tensor in another dtype. Both dtypes must be Float64,
// Float32, BFloat16 or Float16.
func convertTensor(t *tensors.Tensor, dtype dtypes.DType) (*tensors.Tensor, error) {
	var numbers []float64
	var failed error
	err := t.ConstFlatData(func(flat any) {
		switch flat := flat.(type) {
		case []float64:
			numbers = flat
		case []float32:
			numbers = toFloat64s(flat, func(x float32) float64 { return float64(x) })
		case []bfloat16.BFloat16:
			numbers = toFloat64s(flat, func(x bfloat16.BFloat16) float64 { return float64(x.Float32()) })
		case []float16.Float16:
			numbers = toFloat64s(flat, func(x float16.Float16) float64 { return float64(x.Float32()) })
		default:
			failed = invalidError("", "use a float dtype", "its value is %s", t.Shape())
		}
	})
	if err != nil || failed != nil {
		return nil, cmp.Or(failed, err)
	}
	out := tensors.FromShape(shapes.Make(dtype, t.Shape().Dimensions...))
	err = out.MutableFlatData(func(flat any) {
		switch flat := flat.(type) {
		case []float64:
			copy(flat, numbers)
		case []float32:
			fromFloat64s(flat, numbers, func(x float64) float32 { return float32(x) })
		case []bfloat16.BFloat16:
			fromFloat64s(flat, numbers, func(x float64) bfloat16.BFloat16 { return bfloat16.FromFloat32(float32(x)) })
		case []float16.Float16:
			fromFloat64s(flat, numbers, func(x float64) float16.Float16 { return float16.FromFloat32(float32(x)) })
		}
	})
	return out, err
}

func toFloat64s[T any](values []T, convert func(T) float64) []float64 {
	out := make([]float64, len(values))
	for i, x := range values {
		out[i] = convert(x)
	}
	return out
}

func fromFloat64s[T any](dst []T, src []float64, convert func(float64) T) {
	for i, x := range src {
		dst[i] = convert(x)
	}
}
