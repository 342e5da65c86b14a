package hostdata

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
)

// ToTensor converts a number or nested slices of numbers to a GoMLX tensor. A value that is already
// a tensor is returned unchanged. Ragged slices, finalized tensors and other values are errors.
func ToTensor(value any) (t *tensors.Tensor, err error) {
	if t, ok := value.(*tensors.Tensor); ok && t != nil {
		return t, t.CheckValid()
	} else if ok || value == nil {
		return nil, errors.New("no value")
	}
	// GoMLX panics for some unsupported types.
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, fmt.Errorf("a %T: %v", value, r)
		}
	}()
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice && v.Len() == 0 {
		if dtype := dtypes.FromGoType(v.Type().Elem()); dtype != dtypes.InvalidDType {
			return tensors.FromShape(shapes.Make(dtype, 0)), nil
		}
		if element, rank := elementType(v.Type()); rank > 1 && dtypes.FromGoType(element) != dtypes.InvalidDType {
			return nil, fmt.Errorf("an empty %T does not define the length of its rows; "+
				"for a tensor without rows, use tensors.FromShape with a first dimension of 0", value)
		}
	}
	if t, ok := tensorFromSlices(value); ok {
		return t, nil
	}
	return tensors.FromAnyValue(value)
}

// tensorFromSlices copies nested slices to a tensor. It copies complete rows, which is faster than
// GoMLX's conversion of each number by reflection. ok is false for ragged or empty slices, and for
// element types that are not the Go type of a dtype.
func tensorFromSlices(value any) (t *tensors.Tensor, ok bool) {
	v := reflect.ValueOf(value)
	if !v.IsValid() || v.Kind() != reflect.Slice {
		return nil, false
	}
	element := v.Type()
	var dims []int
	for first := v; element.Kind() == reflect.Slice; element = element.Elem() {
		if first.Len() == 0 {
			return nil, false
		}
		dims = append(dims, first.Len())
		first = first.Index(0)
	}
	dtype := dtypes.FromGoType(element)
	isDType := dtype != dtypes.InvalidDType && (dtype.GoType() == element || element == reflect.TypeFor[int]() &&
		dtype == dtypes.Int64)
	if !isDType || !isRectangular(v, dims) {
		return nil, false
	}
	t = tensors.FromShape(shapes.Make(dtype, dims...))
	err := t.MutableFlatData(func(flat any) { copyRows(reflect.ValueOf(flat), v, len(dims)) })
	return t, err == nil
}

func isRectangular(v reflect.Value, dims []int) bool {
	if v.Len() != dims[0] {
		return false
	}
	for i := 0; len(dims) > 1 && i < dims[0]; i++ {
		if !isRectangular(v.Index(i), dims[1:]) {
			return false
		}
	}
	return true
}

// copyRows copies nested slices to the start of flat and returns the unused rest of flat.
func copyRows(flat, v reflect.Value, rank int) reflect.Value {
	if rank == 1 {
		if row, ok := v.Interface().([]int); ok {
			dst := flat.Interface().([]int64)
			for i, n := range row {
				dst[i] = int64(n)
			}
			return flat.Slice(len(row), flat.Len())
		}
		return flat.Slice(reflect.Copy(flat, v), flat.Len())
	}
	for i := range v.Len() {
		flat = copyRows(flat, v.Index(i), rank-1)
	}
	return flat
}

// elementType returns the element type of nested slices, and the number of slice levels.
func elementType(t reflect.Type) (element reflect.Type, depth int) {
	for t.Kind() == reflect.Slice {
		t, depth = t.Elem(), depth+1
	}
	return t, depth
}
