package lowering

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// capabilities returns the ops and dtypes that this package lowers for a target. A test compares
// the ops with the methods of [Function].
func capabilities(target Target) compute.Capabilities {
	c := compute.Capabilities{Functions: true, Operations: map[compute.OpType]bool{}, DTypes: map[dtypes.DType]bool{}}
	for op := compute.OpTypeInvalid + 1; op < compute.OpTypeLast; op++ {
		if !slices.Contains(omittedOps, op) {
			c.Operations[op] = true
		}
	}
	for d := dtypes.InvalidDType + 1; d <= dtypes.Uint1; d++ {
		// libtpu supports 2-bit integers only in tensors that fill its tiles. The CPU compiler
		// supports them in all tensors.
		twoBits := d == dtypes.Int2 || d == dtypes.Uint2
		if ir.IsSupported(d) && (!twoBits || target == TargetCPU) {
			c.DTypes[d] = true
		}
	}
	return c
}

// omittedOps contains the ops that are not lowered: ops with dynamic shapes, fused and quantized
// ops, and ops that GoMLX composes of other ops.
var omittedOps = []compute.OpType{
	compute.OpTypeDynamicBroadcastInDim, compute.OpTypeDynamicDimensionSize, compute.OpTypeDynamicShape,
	compute.OpTypeDynamicIota,
	compute.OpTypeDynamicPad, compute.OpTypeDynamicReshape,
	compute.OpTypeFusedSoftmax, compute.OpTypeFusedLayerNorm, compute.OpTypeFusedGelu, compute.OpTypeFusedDense,
	compute.OpTypeFusedScaledDotProductAttention, compute.OpTypeFusedScaledDotProductAttentionVJP,
	compute.OpTypeFusedAttentionQKVProjection,
	compute.OpTypeFusedQuantizedDense, compute.OpTypeQuantizedEmbeddingLookup, compute.OpTypeBlockForDotGeneral,
	compute.OpTypeDot, compute.OpTypeSelectAndScatterSum, compute.OpTypeCapturedValue, compute.OpTypeCollectiveBroadcast,
	compute.OpTypeAllGather,
}
