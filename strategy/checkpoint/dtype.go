package checkpoint

import (
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
)

// tensorSpec describes the tensor of a variable for a safetensors file.
func tensorSpec(path, name string, shape shapes.Shape) (safetensors.Spec, error) {
	spec := safetensors.Spec{Name: name, DType: safetensors.FromGoMLX(shape.DType), Shape: shape.Dimensions}
	if spec.DType == "" {
		return spec, variableError(path, "dtype "+shape.DType.String()+" is not supported by safetensors files",
			"store it in another dtype, or omit it", nil)
	}
	return spec, nil
}

// specShape returns the shape that a safetensors file specifies for a tensor; it is the inverse of
// tensorSpec. It returns false if GoMLX does not support the dtype or the description is invalid.
func specShape(spec safetensors.Spec) (shapes.Shape, bool) {
	if _, err := spec.Bytes(); err != nil || !spec.DType.GoMLX().IsSupported() {
		return shapes.Shape{}, false
	}
	return shapes.Make(spec.DType.GoMLX(), spec.Shape...), true
}
