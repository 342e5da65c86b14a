package strategy

import (
	"errors"
	"reflect"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// recipe stands in a store for a first value that was made on devices, and says how it is made.
// Reading the store's value computes it on the host; the devices of another strategy make it anew.
// A recipe is a buffer of GoMLX's, and immutable.
type recipe struct {
	backend *lowering.Backend
	store   *model.Store
	init    model.VariableInitializer
	shape   shapes.Shape
	state   *tensors.Tensor // of random numbers before it, nil if it draws none
}

var _ compute.Buffer = (*recipe)(nil)

// newRecipe returns a tensor that has the recipe for its value.
func newRecipe(store *model.Store, init model.VariableInitializer, shape shapes.Shape, state *tensors.Tensor) *tensors.Tensor {
	r := &recipe{backend: lowering.New(lowering.Options{Name: "first values"}), store: store, init: init, shape: shape, state: state}
	t, err := tensors.FromBuffer(r)
	if err != nil { // of Shape or DeviceNum
		panic(err)
	}
	return t
}

// recipeOf returns the recipe that a tensor is, or nil if it has a value of its own.
func recipeOf(t *tensors.Tensor) *recipe {
	r, _ := ownBuffer(t).(*recipe)
	return r
}

// ownBuffer returns the buffer of a tensor that this package made without contents, or nil.
func ownBuffer(t *tensors.Tensor) compute.Buffer {
	if !t.IsOnAnyDevice() {
		return nil
	}
	backend, err := t.Backend()
	if err != nil {
		return nil
	}
	if _, ok := backend.(*lowering.Backend); !ok {
		return nil
	}
	buffer, err := t.Buffer(backend, 0)
	if err != nil {
		return nil
	}
	return buffer
}

func (r *recipe) Backend() compute.Backend              { return r.backend }
func (r *recipe) Finalize() error                       { return nil }
func (r *recipe) Shape() (shapes.Shape, error)          { return r.shape, nil }
func (r *recipe) DeviceNum() (compute.DeviceNum, error) { return 0, nil }
func (r *recipe) Data() (any, error)                    { return nil, errors.ErrUnsupported }

func (r *recipe) CopyToDevice(compute.DeviceNum) (compute.Buffer, error) {
	return nil, &Error{Op: "strategy: copying the first value of a variable", Reason: "it is computed when it is read", Hint: "read it",
		Class: NotImplementedError, Match: errors.ErrUnsupported}
}

// ToFlatData computes the value on the host.
func (r *recipe) ToFlatData(flat any) error {
	values, _, err := valuesOnHost(r.store, []model.VariableInitializer{r.init}, []shapes.Shape{r.shape},
		func() (*tensors.Tensor, error) { return r.state.LocalClone() })
	if err != nil {
		return fault.Of("the first value of a variable", err, "")
	}
	return values[0].ConstFlatData(func(value any) { reflect.Copy(reflect.ValueOf(flat), reflect.ValueOf(value)) })
}
