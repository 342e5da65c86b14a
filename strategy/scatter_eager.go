package strategy

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
)

// Scatter is [ReplicaContext.Scatter] for eager code. The replicas' numbers of rows
// may differ. In an update each component takes its own rows, once, and nothing is
// aggregated: see [UpdateContext.Scatter].
func (rc *EagerContext) Scatter(op ScatterOp, v *Variable, indices, updates any) (any, error) {
	if err := rc.writes(op.String(), v); err != nil {
		return nil, err
	}
	s := rc.strategy
	name := fmt.Sprintf("%s %q", op, v.path)
	if err := v.scatterRule(op, !rc.update); err != nil {
		return nil, err
	}
	if rc.tracing != nil {
		return rc.tracing.written(v, rc.tracing.scatter(op, v, indices, updates))
	}
	return rc.join(op.String()+" "+v.path, [2]any{indices, updates}, func(all []any) ([]any, error) {
		values := make([]Value, 2)
		for i := range values {
			column := make([]any, len(all))
			for r := range all {
				column[r] = all[r].([2]any)[i]
			}
			x, release, err := rc.rows(name, v, column)
			if err != nil {
				return nil, err
			}
			defer release()
			values[i] = x
		}
		for r := range s.replicas {
			component := [2]*Component{s.component(values[0], r), s.component(values[1], r)}
			if err := v.scatterShapes(name, component[0].Shape(), component[1].Shape()); err != nil {
				return nil, fmt.Errorf("strategy: replica %d: %w", r, err)
			}
		}
		if base := values[0].base(); base.ragged != nil {
			sizes, err := s.sizesOf(rc.outer(), base)
			if err != nil {
				return nil, err
			}
			defer sizes.Close()
			values = append(values, sizes)
		}
		kind := "replica_"
		if rc.update {
			kind = "update_"
		}
		return rc.apply(builtinCall{
			name: kind + op.String(), values: values, variables: []*Variable{v},
			step: func(c *ReplicaContext, held []*captured, in []*graph.Node) []*graph.Node {
				indices, updates := in[0], in[1]
				if len(in) > 2 {
					indices = realRows(indices, in[2])
				}
				if rc.update {
					return []*graph.Node{c.scatter(op, held[0], indices, updates)}
				}
				return []*graph.Node{c.Scatter(op, held[0].variable, indices, updates)}
			},
		}, v)
	})
}

// rows makes one value of what the replicas scatter. The components of a mirrored
// variable take equal rows in an update.
func (rc *EagerContext) rows(name string, v *Variable, column []any) (Value, func(), error) {
	if rc.update && !v.perReplica() {
		var err error
		if column, err = rc.mirrorEqual(name, v, column); err != nil {
			return nil, nil, err
		}
	}
	return rc.strategy.merge(rc.outer(), name, column)
}
