package first

import (
	"reflect"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
)

// Value stands in a store for a first value that was made on devices, and says how it is made. Reading
// the store's value computes it on the host; the devices of another strategy make it anew. It is
// immutable.
type Value struct {
	store *model.Store
	init  model.VariableInitializer
	shape shapes.Shape
	state *tensors.Tensor // of random numbers before it, nil if it draws none
}

// newValue returns a tensor that is computed when it is read.
func newValue(store *model.Store, init model.VariableInitializer, shape shapes.Shape,
	state *tensors.Tensor) *tensors.Tensor {
	v := &Value{store: store, init: init, shape: shape, state: state}
	return lazy.Tensor(shape, v, v.read)
}

// ValueOf returns the first value that a tensor stands for, or nil if it has a value of its own.
func ValueOf(t *tensors.Tensor) *Value {
	v, _ := lazy.Of(t).(*Value)
	return v
}

// read computes the value on the host.
func (v *Value) read(flat any) error {
	values, _, err := valuesOnHost(v.store, []model.VariableInitializer{v.init}, []shapes.Shape{v.shape},
		func() (*tensors.Tensor, error) { return v.state.LocalClone() })
	if err != nil {
		return fault.Of("the first value of a variable", err, "")
	}
	return values[0].ConstFlatData(func(value any) { reflect.Copy(reflect.ValueOf(flat), reflect.ValueOf(value)) })
}
