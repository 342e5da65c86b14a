package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// Gather concatenates the replicas' tensors along axis, in replica order, on the devices, like
// TensorFlow's strategy.gather. The sizes along axis may differ between replicas. The result is the
// same on each replica, and the caller must close it.
//
// Gather returns [ErrContext] in replica code, which must call AllGather instead, and
// [ErrOtherStrategy]. It returns an [*Error] of kind InvalidArgumentError for a scalar, an invalid
// axis or shapes that do not match, and of kind TypeError for a *[StackedBatches].
func (s *TPUStrategy) Gather(ctx context.Context, value Value, axis int) (*Mirrored, error) {
	if err := s.requireEager(ctx, "gather",
		"use MergeContext.Gather, ReplicaContext.AllGather, or Gather of package eager"); err != nil {
		return nil, err
	}
	if err := checkOwnedBy(s, value); err != nil {
		return nil, err
	}
	base := value.base()
	rank := len(base.shape)
	if base.steps > 0 {
		return nil, fault.New(errkind.TypeError, "gather", "gather the result of a step", "a value of several steps")
	}
	if s.replicas == 1 && s.opts.Semantics == TensorFlowMirrored {
		return copyMirrored(ctx, value, value.Annotation()) // one tensor needs no concatenation, so any axis is valid
	}
	switch {
	case rank == 0:
		return nil, fault.New(errkind.InvalidArgumentError, "gather", "give each a dimension of size 1",
			"scalars cannot be concatenated")
	case axis < -rank || axis >= rank:
		return nil, fault.New(errkind.InvalidArgumentError, "gather", "use an axis that the tensors have",
			"axis %d of tensors of rank %d", axis, rank)
	}
	axis = (axis + rank) % rank
	sizes := make([]int, s.replicas)
	total := 0
	for r := range s.replicas {
		shape := base.replicaShape(r)
		for d, n := range shape {
			if d != axis && n != base.replicaShape(0)[d] {
				return nil, fault.New(errkind.InvalidArgumentError, "gather",
					"only the gathered dimension may differ", "replicas have different shapes %v", base.replicaShapes)
			}
		}
		sizes[r] = shape[axis]
		total += sizes[r]
	}
	if total == 0 {
		dims := slices.Clone(base.shape)
		dims[axis] = 0
		return s.Mirror(ctx, tensors.FromShape(shapes.Make(base.dtype, dims...)), logical.Annotation{})
	}
	// Programs are cached by name, which must contain all parameters except the arguments' shapes.
	ragged := base.replicaShapes != nil
	return builtinCall{
		name: fmt.Sprintf("gather_%d_%v_%t", axis, sizes, ragged), values: []Value{value}, mirrored: true,
		step: func(_ *ReplicaContext, in []*graph.Node) []*graph.Node {
			all := spmd.AllGather(in[0], axis)
			if !ragged {
				return []*graph.Node{all}
			}
			var parts []*graph.Node
			for r, n := range sizes {
				if n > 0 {
					start := r * in[0].Shape().Dimensions[axis]
					parts = append(parts, graph.SliceAxis(all, axis, graph.AxisRange(start, start+n)))
				}
			}
			return []*graph.Node{graph.Concatenate(parts, axis)}
		},
	}.runMirrored(ctx, s)
}
