package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
)

// Reduce combines a value over the replicas, element by element, on the devices:
// TensorFlow's strategy.reduce with axis None. Each replica receives the result.
// A *[Mirrored] value's Mean is itself, and its Sum is R times the value.
func (s *TPUStrategy) Reduce(ctx context.Context, op ReduceOp, value Value) (*Mirrored, error) {
	if err := s.owns(value); err != nil {
		return nil, err
	}
	f := s.builtin("reduce_"+op.String()+"_"+value.Annotation().String(), func() *Function {
		reduce := func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.AllReduce(op, in[0])}
		}
		f := s.Function(reduce, FunctionOptions{Name: "reduce", mirroredResults: true})
		f.opts.Results = append(f.opts.Results, value.Annotation())
		return f
	})
	p, err := f.program(ctx, []Value{value})
	if err != nil {
		return nil, err
	}
	results, err := p.run(ctx, []Value{value})
	if err != nil {
		return nil, err
	}
	return results[0].(*Mirrored), nil
}

// Value copies the value to the host.
func (m *Mirrored) Value(ctx context.Context) (*tensors.Tensor, error) { return m.Local(ctx, 0) }

// Float64 copies a scalar to the host as a float64, waiting for it.
func (m *Mirrored) Float64(ctx context.Context) (float64, error) {
	t, err := m.Value(ctx)
	if err != nil {
		return 0, err
	}
	if t.Size() != 1 {
		return 0, fmt.Errorf("strategy: a value of shape %s is no number", t.Shape())
	}
	return toFloat64(t)
}
