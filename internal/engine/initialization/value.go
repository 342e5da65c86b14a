package initialization

import (
	"reflect"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazytensor"
)

// Value represents an initial value in a store that was computed on devices and is not in host
// memory. Reading the variable from the store computes the value again on the host. [Repeat]
// computes it on the devices of another strategy. A Value is immutable.
type Value struct {
	store *model.Store
	init  model.VariableInitializer
	shape shapes.Shape
	state *tensors.Tensor // random number state before the initializer, nil if it is not random
}

// newValue returns a tensor for the store that represents an initial value. The value is computed
// when the tensor is read.
func newValue(store *model.Store, init model.VariableInitializer, shape shapes.Shape,
	state *tensors.Tensor) *tensors.Tensor {
	v := &Value{store: store, init: init, shape: shape, state: state}
	return lazytensor.New(shape, v, v.read)
}

// ValueOf returns the Value that a tensor of a store represents, or nil for an ordinary tensor.
func ValueOf(t *tensors.Tensor) *Value {
	v, _ := lazytensor.SourceOf(t).(*Value)
	return v
}

func (v *Value) read(flat any) error {
	values, _, err := computeOnHost(v.store, []model.VariableInitializer{v.init}, []shapes.Shape{v.shape},
		func() (*tensors.Tensor, error) { return v.state.LocalClone() })
	if err != nil {
		return fault.Wrap("the first value of a variable", err, "")
	}
	return values[0].ConstFlatData(func(value any) { reflect.Copy(reflect.ValueOf(flat), reflect.ValueOf(value)) })
}
