package eager

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// MakeNumpyDataset creates a dataset of host arrays, like TensorFlow's make_numpy_dataset. Element
// i of the dataset has row i of each leaf of the nest. A []any is a tuple, a map[string]any a
// dictionary. A leaf is a tensor, numbers or strings in nested slices, or an [input.Tensor]. All
// leaves must have the same number of rows.
func (e *Extended) MakeNumpyDataset(nest any) (input.Dataset, error) {
	element, err := e.elementOf(nest)
	if err != nil {
		return input.Dataset{}, err
	}
	ds := input.FromSlices(element)
	return ds, ds.Err()
}

func (e *Extended) elementOf(nest any) (input.Element, error) {
	switch x := nest.(type) {
	case []any:
		members := make([]input.Element, len(x))
		for i := range x {
			var err error
			if members[i], err = e.elementOf(x[i]); err != nil {
				return input.Element{}, err
			}
		}
		return input.Tuple(members...), nil
	case map[string]any:
		members := map[string]input.Element{}
		for k := range x {
			var err error
			if members[k], err = e.elementOf(x[k]); err != nil {
				return input.Element{}, err
			}
		}
		return input.Dict(members), nil
	}
	if t, ok := nest.(input.Tensor); ok {
		return input.Leaf(t), nil
	}
	if flat, dims, ok := flatStrings(reflect.ValueOf(nest)); ok {
		leaf, err := input.NewTensor(flat, dims...)
		return input.Leaf(leaf), err
	}
	t, err := hostdata.ToTensor(nest)
	if err != nil {
		return input.Element{}, &strategy.Error{Op: "strategy: dataset", Reason: fmt.Sprintf("a leaf of type %T",
			nest), Err: err, Class: errkind.TypeError}
	}
	kind, ok := input.KindOf(t.DType())
	if !ok {
		return input.Element{}, fault.New(errkind.TypeError, "dataset", "convert it", "a leaf of dtype %s", t.DType())
	}
	var leaf input.Tensor
	var failed error
	if err := t.ConstBytes(func(data []byte) {
		leaf, failed = input.FromBytes(kind, data,
			t.Shape().Dimensions...)
	}); err != nil {
		return input.Element{}, fault.Wrap("dataset", err, "")
	}
	return input.Leaf(leaf), failed
}

// flatStrings returns the elements and the dimensions of nested slices of strings. ok is false for
// other values and for slices of different lengths.
func flatStrings(v reflect.Value) (flat []string, dims []int, ok bool) {
	if !v.IsValid() {
		return nil, nil, false
	}
	switch v.Kind() {
	case reflect.String:
		return []string{v.String()}, nil, true
	case reflect.Slice, reflect.Array:
	default:
		return nil, nil, false
	}
	if v.Len() == 0 {
		return nil, []int{0}, v.Type().Elem().Kind() == reflect.String
	}
	for i := range v.Len() {
		part, inner, ok := flatStrings(v.Index(i))
		if !ok || i > 0 && !slices.Equal(inner, dims) {
			return nil, nil, false
		}
		flat, dims = append(flat, part...), inner
	}
	return flat, append([]int{v.Len()}, dims...), true
}
