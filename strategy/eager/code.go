package eager

import (
	"context"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
	"github.com/tpustrategy/tpustrategy/strategy/internal/mode"
)

// ReplicaContextOf returns the replica context that ctx belongs to, and whether it belongs to one:
// TensorFlow's tf.distribute.get_replica_context.
func ReplicaContextOf(ctx context.Context) (*ReplicaContext, bool) {
	m, _ := mode.Of(ctx)
	rc, ok := m.Code.(*ReplicaContext)
	return rc, ok
}

// componentCode is the code of an update's function, to which the variables' own methods turn that
// are given its context.
type componentCode struct{ rc *ReplicaContext }

func (c *componentCode) Number() int { return c.rc.replica }

func (c *componentCode) Write(w assign.Op, v *strategy.Variable, x any) error {
	_, err := c.rc.write(w, v, c.rc.part(x))
	return err
}

func (c *componentCode) ScatterRows(op strategy.ScatterOp, v *strategy.Variable, indices, updates any) error {
	_, err := c.rc.Scatter(op, v, c.rc.part(indices), c.rc.part(updates))
	return err
}
