package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// AllReduce combines each operand across the replicas of each group. Every operand gets an
// all_reduce of its own, in order: XLA's partitioners do not take one with several operands.
func (f *Function) AllReduce(operands []compute.Value, reduction compute.ReduceOpType, replicaGroups [][]int) ([]compute.Value, error) {
	return f.ops("AllReduce", operands, func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
		kind, err := combinerOf(reduction)
		if err != nil {
			return nil, err
		}
		out := make([]*stablehlo.Value, len(in))
		for i, v := range in {
			closure, err := f.combiner(kind, v.Shape().DType)
			if err != nil {
				return nil, err
			}
			reduced, err := stablehlo.AllReduce([]*stablehlo.Value{v}, replicaGroups, closure)
			if err != nil {
				return nil, err
			}
			out[i] = reduced[0]
		}
		return out, nil
	})
}
