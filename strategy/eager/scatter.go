package eager

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/scatter"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Scatter combines rows of a variable with updates, like [strategy.ReplicaContext.Scatter]. It is a
// collective call. The replicas may pass different numbers of rows. In an update function Scatter
// only changes the function's component, like [UpdateContext.Scatter].
func (rc *ReplicaContext) Scatter(op strategy.ScatterOp, v *strategy.Variable, indices, updates any) (any, error) {
	if err := rc.checkWrite(op.String(), v); err != nil {
		return nil, err
	}
	s := rc.strategy
	name := fmt.Sprintf("%s %q", op, v.Path())
	if err := engine.Internal(s).CheckScatter(v, op, !rc.inUpdate); err != nil {
		return nil, err
	}
	call := op.String() + " " + v.Path()
	if rc.onHost || rc.tracing != nil {
		return rc.writeAllComponents(call, v, func(ctx context.Context) error { return v.Scatter(ctx, op, indices, updates) })
	}
	return rc.callCollective(call, v, []any{rc.component(indices), rc.component(updates)}, func(all []any) ([]any, error) {
		values := make([]strategy.Value, 2)
		for i := range values {
			column := make([]any, len(all))
			for r := range all {
				column[r] = all[r].([]any)[i]
			}
			x, release, err := rc.mergeValues(name, v, column)
			if err != nil {
				return nil, err
			}
			defer release()
			values[i] = x
		}
		for r := range s.NumReplicasInSync() {
			indices, updates := Component{value: values[0], replica: r}, Component{value: values[1], replica: r}
			if err := scatter.CheckShapes(name, v.Shape(), indices.Shape(), updates.Shape()); err != nil {
				return nil, fault.Wrap(fmt.Sprintf("replica %d", r), err, "")
			}
		}
		if engine.Internal(values[0]).ReplicaShapes() != nil {
			sizes, err := engine.Internal(values[0]).ReplicaSizes(rc.callerContext())
			if err != nil {
				return nil, err
			}
			defer sizes.Close()
			values = append(values, sizes)
		}
		kind := "replica_"
		if rc.inUpdate {
			kind = "update_"
		}
		aggregate := !rc.inUpdate
		return rc.applyWrite(kind+op.String(), v, values, func(c *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			indices, updates := in[0], in[1]
			if len(in) > 2 {
				indices = scatter.MaskIndices(indices, in[2])
			}
			if aggregate {
				return []*graph.Node{c.Scatter(op, v, indices, updates)}
			}
			return []*graph.Node{engine.Internal(c).ScatterRows(op, v, indices, updates)}
		})
	})
}
