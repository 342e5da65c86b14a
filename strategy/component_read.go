package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
)

// updater returns the code of the update of the variable's strategy that ctx belongs to, or nil.
func (v *Variable) updater(ctx context.Context) component {
	m, _ := modeOf(ctx)
	if m.strategy != v.strategy {
		return nil
	}
	c, _ := m.code.(component)
	return c
}

// write writes the component of ctx's update, or all of them.
func (v *Variable) write(ctx context.Context, w assign.Op, value any) error {
	op := fmt.Sprintf("%s %q", w.Name, v.path)
	if t, err := v.strategy.crossTracing(ctx, op); err != nil {
		return err
	} else if t != nil {
		return t.Write(w, v, value)
	}
	if c := v.updater(ctx); c != nil {
		return c.Write(w, v, value)
	}
	return v.crossWrite(ctx, w, value)
}

// componentAs is one component on all replicas, split over the logical devices as a says.
func (v *Variable) componentAs(ctx context.Context, replica int, a logical.Annotation) (*Mirrored, error) {
	of, err := v.strategy.Mirror(ctx, int32(replica), logical.Annotation{})
	if err != nil {
		return nil, err
	}
	defer of.Close()
	results, err := v.strategy.call(ctx, builtinCall{
		name: "read_component", values: []Value{of}, variables: []*Variable{v}, mirrored: true, results: one(a),
		step: func(rc *ReplicaContext, held []*captured, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.of(in[0], held[0].now)}
		},
	})
	if err != nil {
		return nil, err
	}
	return results[0].(*Mirrored), nil
}

// componentValue copies one component to the host, of whichever process it is.
func (v *Variable) componentValue(ctx context.Context, replica int) (*tensors.Tensor, error) {
	s, a := v.strategy, v.annotation
	if s.everywhere(true, a) {
		return v.Local(ctx, replica)
	}
	if !s.everywhere(false, a) {
		a = logical.Replicated()
	}
	m, err := v.componentAs(ctx, replica, a)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.Value(ctx)
}
