package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
)

// capabilities lists what this package lowers. The list of ops is held against the methods by a
// test.
func capabilities(target Target) compute.Capabilities {
	c := compute.Capabilities{
		Functions:  true,
		Operations: make(map[compute.OpType]bool, len(loweredOps)),
		DTypes:     make(map[dtypes.DType]bool),
	}
	for _, op := range loweredOps {
		c.Operations[op] = true
	}
	for d := dtypes.InvalidDType + 1; d <= dtypes.Uint1; d++ {
		// libtpu takes 2-bit integers only in tensors that fill its tiles; the CPU compiler takes
		// all.
		twoBits := d == dtypes.Int2 || d == dtypes.Uint2
		if representable(d) && (!twoBits || target == TargetCPU) {
			c.DTypes[d] = true
		}
	}
	return c
}

var loweredOps = []compute.OpType{
	compute.OpTypeParameter, compute.OpTypeConstant, compute.OpTypeIdentity,

	compute.OpTypeAbs, compute.OpTypeBitCount, compute.OpTypeBitwiseNot, compute.OpTypeCeil, compute.OpTypeClz,
	compute.OpTypeConj, compute.OpTypeConvertDType, compute.OpTypeCos, compute.OpTypeErf, compute.OpTypeExp,
	compute.OpTypeExpm1, compute.OpTypeFloor, compute.OpTypeImag, compute.OpTypeIsFinite, compute.OpTypeIsNaN,
	compute.OpTypeLog, compute.OpTypeLog1p, compute.OpTypeLogicalNot, compute.OpTypeLogistic, compute.OpTypeNeg,
	compute.OpTypeReal, compute.OpTypeRound, compute.OpTypeRsqrt, compute.OpTypeSign, compute.OpTypeSin,
	compute.OpTypeSqrt, compute.OpTypeTanh,

	compute.OpTypeAdd, compute.OpTypeAtan2, compute.OpTypeBitwiseAnd, compute.OpTypeBitwiseOr, compute.OpTypeBitwiseXor,
	compute.OpTypeComplex, compute.OpTypeDiv, compute.OpTypeLogicalAnd, compute.OpTypeLogicalOr, compute.OpTypeLogicalXor,
	compute.OpTypeMax, compute.OpTypeMin, compute.OpTypeMul, compute.OpTypePow, compute.OpTypeRem, compute.OpTypeShiftLeft,
	compute.OpTypeShiftRightArithmetic, compute.OpTypeShiftRightLogical, compute.OpTypeSub,

	compute.OpTypeEqual, compute.OpTypeEqualTotalOrder, compute.OpTypeGreaterOrEqual, compute.OpTypeGreaterOrEqualTotalOrder,
	compute.OpTypeGreaterThan, compute.OpTypeGreaterThanTotalOrder, compute.OpTypeLessOrEqual,
	compute.OpTypeLessOrEqualTotalOrder, compute.OpTypeLessThan, compute.OpTypeLessThanTotalOrder,
	compute.OpTypeNotEqual, compute.OpTypeNotEqualTotalOrder,

	compute.OpTypeBitcast, compute.OpTypeBroadcastInDim, compute.OpTypeClamp, compute.OpTypeConcatenate,
	compute.OpTypeDynamicSlice, compute.OpTypeDynamicUpdateSlice, compute.OpTypeGather, compute.OpTypeIota,
	compute.OpTypePad, compute.OpTypeReshape, compute.OpTypeReverse, compute.OpTypeSlice, compute.OpTypeTranspose,
	compute.OpTypeWhere,

	compute.OpTypeArgMinMax, compute.OpTypeCumSum, compute.OpTypeReduceBitwiseAnd, compute.OpTypeReduceBitwiseOr,
	compute.OpTypeReduceBitwiseXor, compute.OpTypeReduceLogicalAnd, compute.OpTypeReduceLogicalOr,
	compute.OpTypeReduceLogicalXor, compute.OpTypeReduceMax, compute.OpTypeReduceMin, compute.OpTypeReduceProduct,
	compute.OpTypeReduceSum, compute.OpTypeReduceWindow, compute.OpTypeScatterMax, compute.OpTypeScatterMin,
	compute.OpTypeScatterSum, compute.OpTypeSelectAndScatterMax, compute.OpTypeSelectAndScatterMin,

	compute.OpTypeBatchNormForInference, compute.OpTypeBatchNormForTraining, compute.OpTypeBatchNormGradient,
	compute.OpTypeConvGeneral, compute.OpTypeDotGeneral, compute.OpTypeFFT, compute.OpTypeRNGBitGenerator,

	compute.OpTypeCall, compute.OpTypeIf, compute.OpTypeOptimizationBarrier, compute.OpTypeSchedulingBarrier,
	compute.OpTypeSort, compute.OpTypeWhile, compute.OpTypeAllReduce,
}
