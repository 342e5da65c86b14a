package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
)

// For package lm/generate: state that stays on the devices between launches, and launches that
// repeat a step.

// State creates variables with a separate tensor on each replica, initialized with zeros. It uses
// the name, for errors and reports, and the annotation of the options. The zeros are computed on
// the devices; ahead of time there are no buffers. The variables are not listed: checkpoints, rules
// and optimizers ignore them. Close releases a variable.
func (m innerStrategy) State(ctx context.Context, of []shapes.Shape, opts []VariableOptions) ([]*Variable, error) {
	s := m.TPUStrategy
	all := make([]*Variable, len(of))
	var key strings.Builder
	var layouts []logical.Annotation
	for i, shape := range of {
		v := &Variable{strategy: s, path: opts[i].Name, dtype: shape.DType, shape: slices.Clone(shape.Dimensions), annotation: opts[i].Annotation,
			synchronization: OnRead, unlisted: true}
		if err := v.annotation.ValidateOn(s.axes, v.path, v.shape); err != nil {
			return nil, &Error{Op: fmt.Sprintf("strategy: state %q", v.path), Reason: "its annotation does not fit", Err: err, Class: errkind.ValueError}
		}
		if _, err := v.layout(); err != nil {
			return nil, err
		}
		all[i], layouts = v, append(layouts, v.annotation)
		key.WriteString(" " + shape.String())
	}
	if s.slice == nil {
		zeros, err := builtinCall{name: "zeros" + key.String(), results: layouts,
			step: func(rc *ReplicaContext, _ []*graph.Node) (nodes []*graph.Node) {
				for _, shape := range of {
					nodes = append(nodes, graph.Zeros(rc.graph, shape))
				}
				return nodes
			}}.run(ctx, s)
		if err != nil {
			return nil, err
		}
		for i, v := range all {
			v.buffers = zeros[i].base().surrender()
		}
	}
	return all, s.ownVariables(all...)
}

func (m innerFunction) Repeat(most int) { m.repeats = most }

func (m innerStrategy) Outline(shape shapes.Shape) (Value, error) {
	return batchShare{TPUStrategy: m.TPUStrategy}.abstract(shape, false)
}
