package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// AllReduce combines each operand across the replicas of each group. It adds one all_reduce per
// operand, in order, because XLA's partitioners do not support an all_reduce with several operands.
func (f *Function) AllReduce(operands []compute.Value, reduction compute.ReduceOpType,
	replicaGroups [][]int) ([]compute.Value, error) {
	return f.addOps("AllReduce", operands, func(in []*stablehlo.Value) []*stablehlo.Value {
		kind, out := combinerOf(reduction), make([]*stablehlo.Value, len(in))
		for i, v := range in {
			out[i] = must(stablehlo.AllReduce([]*stablehlo.Value{v}, replicaGroups, f.combiner(kind, v.Shape().DType)))[0]
		}
		return out
	})
}
