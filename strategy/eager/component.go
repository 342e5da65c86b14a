package eager

import (
	"context"
	"fmt"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Component is one replica's tensor of a distributed value or a variable. It is a reference: it
// neither copies nor owns the data. Components of the same replica and the same value are equal
// (==).
type Component struct {
	value    strategy.Value
	variable *strategy.Variable
	replica  int
}

// Distributed is a [strategy.Value] or a *[strategy.Variable].
type Distributed interface {
	// Shape returns the dtype and the dimensions of one replica's tensor.
	Shape() shapes.Shape
	// Local waits for one replica's tensor and copies it to the host.
	Local(ctx context.Context, replica int) (*tensors.Tensor, error)
	// Ready waits until the tensors are computed on all devices.
	Ready(ctx context.Context) error
}

// Component returns a replica's component of a value or a variable.
func (e *Extended) Component(of Distributed, replica int) (Component, error) {
	if err := engine.Internal(e.strategy).CheckOwned("component", of); err != nil {
		return Component{}, err
	}
	if n := e.strategy.NumReplicasInSync(); replica < 0 || replica >= n {
		return Component{}, fault.New(errkind.ValueError, "component", "count from 0", "replica %d of %d", replica, n)
	}
	switch of := of.(type) {
	case strategy.Value:
		return Component{value: of, replica: replica}, nil
	case *strategy.Variable:
		return Component{variable: of, replica: replica}, nil
	}
	return Component{}, fault.New(errkind.TypeError, "component", "give a value or a variable of the strategy",
		"a value of type %T", of)
}

// Replica returns the index of the replica, from 0.
func (c Component) Replica() int { return c.replica }

// Variable returns the component's variable, or nil for a component of a value.
func (c Component) Variable() *strategy.Variable { return c.variable }

// Value returns the component's value, or nil for a component of a variable.
func (c Component) Value() strategy.Value { return c.value }

// source returns the component's value or variable, or nil for a zero Component.
func (c Component) source() Distributed {
	if c.variable != nil {
		return c.variable
	}
	return c.value
}

// Shape returns the dtype and the dimensions of the replica's tensor.
func (c Component) Shape() shapes.Shape {
	switch {
	case c.variable != nil:
		return c.variable.Shape()
	case c.value == nil:
		return shapes.Invalid()
	}
	shape := c.value.Shape()
	if ragged := engine.Internal(c.value).ReplicaShapes(); ragged != nil {
		shape = shapes.Make(shape.DType, ragged[c.replica]...)
	}
	return shape
}

// Local waits for the replica's tensor and returns a host copy, which the caller owns.
func (c Component) Local(ctx context.Context) (*tensors.Tensor, error) {
	if c == (Component{}) {
		return nil, fault.New(errkind.TypeError, "read", "make one with Extended.Component", "a component of nothing")
	}
	return c.source().Local(ctx, c.replica)
}

func (c Component) String() string {
	if c.variable != nil {
		return c.variable.ComponentName(c.replica)
	}
	return fmt.Sprintf("%s[%d]", c.value, c.replica)
}
