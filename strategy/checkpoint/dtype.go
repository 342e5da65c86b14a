package checkpoint

import (
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
)

// specOf returns the file's description of a variable's tensor.
func specOf(path, name string, shape shapes.Shape) (safetensors.Spec, error) {
	spec := safetensors.Spec{Name: name, DType: safetensors.FromGoMLX(shape.DType), Shape: shape.Dimensions}
	if spec.DType == "" {
		return spec, faultOf(path, "dtype "+shape.DType.String()+" has no form in a safetensors file", "keep it in another dtype, or leave it out", nil)
	}
	return spec, nil
}

// shapeOf is the inverse of specOf. It reports false if GoMLX does not support the dtype or the
// description is invalid.
func shapeOf(spec safetensors.Spec) (shapes.Shape, bool) {
	if _, err := spec.Bytes(); err != nil || !spec.DType.GoMLX().IsSupported() {
		return shapes.Shape{}, false
	}
	return shapes.Make(spec.DType.GoMLX(), spec.Shape...), true
}
