package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
)

// Component is one replica's part of a distributed value or of a variable. It is a reference: it
// copies nothing and owns nothing. The same part is the same object each time.
type Component struct {
	value    Value
	variable *Variable
	replica  int
}

// Replica returns the number of the replica whose part this is, from 0.
func (c *Component) Replica() int { return c.replica }

// Variable returns the variable that the component belongs to, or nil for a component of a value.
func (c *Component) Variable() *Variable { return c.variable }

// Value returns the value that the component belongs to, or nil for a component of a variable.
func (c *Component) Value() Value { return c.value }

// Shape returns the dtype and the dimensions of the replica's tensor.
func (c *Component) Shape() shapes.Shape {
	if c.variable != nil {
		return c.variable.Shape()
	}
	base := c.value.base()
	return shapes.Make(base.dtype, base.shapeOf(c.replica)...)
}

// Local waits for the replica's tensor and copies it to the host. The copy is the caller's.
func (c *Component) Local(ctx context.Context) (*tensors.Tensor, error) {
	if c.variable != nil {
		return c.variable.Local(ctx, c.replica)
	}
	return c.value.Local(ctx, c.replica)
}

// String describes the component without reading it.
func (c *Component) String() string {
	if c.variable != nil {
		return c.variable.ComponentName(c.replica)
	}
	return fmt.Sprintf("%s[%d]", c.value.base(), c.replica)
}

// component returns a replica's part of a value.
func (s *TPUStrategy) component(v Value, replica int) *Component {
	base := v.base()
	base.mu.Lock()
	defer base.mu.Unlock()
	if base.components == nil {
		for r := range s.replicas {
			base.components = append(base.components, &Component{value: v, replica: r})
		}
	}
	return base.components[replica]
}

// shapeOf is the real shape of a replica's tensor.
func (v *distributed) shapeOf(replica int) []int {
	if v.ragged != nil {
		return v.ragged[replica]
	}
	return v.shape
}
