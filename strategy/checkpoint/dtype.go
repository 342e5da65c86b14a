package checkpoint

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
)

// fileTypes are the file's types of GoMLX's dtypes, by dtype. Others have no form there, or none
// whose bytes are the tensor's.
var fileTypes = []struct {
	dtype dtypes.DType
	file  safetensors.DType
}{
	{dtypes.Bool, safetensors.Bool},
	{dtypes.Int8, safetensors.I8}, {dtypes.Int16, safetensors.I16}, {dtypes.Int32, safetensors.I32}, {dtypes.Int64, safetensors.I64},
	{dtypes.Uint8, safetensors.U8}, {dtypes.Uint16, safetensors.U16}, {dtypes.Uint32, safetensors.U32}, {dtypes.Uint64, safetensors.U64},
	{dtypes.Float16, safetensors.F16}, {dtypes.BFloat16, safetensors.BF16}, {dtypes.Float32, safetensors.F32}, {dtypes.Float64, safetensors.F64},
	{dtypes.Complex64, safetensors.C64},
}

// specOf describes a variable for the file.
func specOf(path, name string, shape shapes.Shape) (safetensors.Spec, error) {
	for _, t := range fileTypes {
		if t.dtype == shape.DType {
			spec := safetensors.Spec{Name: name, DType: t.file, Shape: make([]int64, len(shape.Dimensions))}
			for i, d := range shape.Dimensions {
				spec.Shape[i] = int64(d)
			}
			return spec, nil
		}
	}
	return safetensors.Spec{}, faultOf(path, "dtype "+shape.DType.String()+" has no form in a safetensors file", "keep it in another dtype, or leave it out", nil)
}

// shapeOf is the inverse of specOf; false if GoMLX has no such dtype, or if there is no such tensor.
func shapeOf(spec safetensors.Spec) (shapes.Shape, bool) {
	if _, err := spec.Bytes(); err != nil {
		return shapes.Shape{}, false
	}
	for _, t := range fileTypes {
		if t.file == spec.DType {
			dims := make([]int, len(spec.Shape))
			for i, d := range spec.Shape {
				dims[i] = int(d)
			}
			return shapes.Make(t.dtype, dims...), true
		}
	}
	return shapes.Shape{}, false
}
