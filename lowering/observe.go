package lowering

import (
	"fmt"
	"path"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// dtypeObserver records the float dtypes that ops compute in.
type dtypeObserver struct {
	dtype dtypes.DType
	used  bool
	// product describes the first dot product or convolution of floats of another dtype, and op the
	// first other op of such floats.
	product, op string
}

// movementOps lists ops that compute nothing.
var movementOps = []string{"ConvertDType", "Identity", "Reshape", "BroadcastInDim", "Transpose", "Slice"}

// Observe records the float dtypes of the ops that are lowered until stop is called. used reports
// whether an op computes with floats of the given dtype. other describes an op that computes with
// floats of another dtype: the first dot product or convolution, or else the first op, or "".
// Conversions and ops that only move elements are ignored. Observe is for one graph and must not be
// called while another goroutine traces.
func (b *Backend) Observe(dtype dtypes.DType) (stop func() (used bool, other string)) {
	o := &dtypeObserver{dtype: dtype}
	b.observed = o
	return func() (used bool, other string) {
		b.observed = nil
		if o.product != "" {
			return o.used, o.product
		}
		return o.used, o.op
	}
}

func (o *dtypeObserver) recordOp(name string, operands []*Value, results []compute.Value) {
	if o == nil || slices.Contains(movementOps, name) {
		return
	}
	other := dtypes.InvalidDType
	for _, v := range operands {
		switch dtype := v.shape.DType; {
		case dtype == o.dtype:
			o.used = true
			return
		case dtype.IsFloat() && other == dtypes.InvalidDType:
			other = dtype
		}
	}
	switch product := name == "DotGeneral" || name == "ConvGeneral"; {
	case other == dtypes.InvalidDType:
	case product && o.product == "":
		o.product = describeOp(other, "product", name, operands, results)
	case o.op == "":
		o.op = describeOp(other, "operation", name, operands, results)
	}
}

// describeOp formats an op for an error, such as "Float32 product DotGeneral of [8 64] and [64 256]
// at model.go:49".
func describeOp(dtype dtypes.DType, kind, name string, operands []*Value, results []compute.Value) string {
	all := make([]shapes.Shape, len(operands))
	for i, v := range operands {
		all[i] = v.shape
	}
	text := fmt.Sprintf("%s %s %s%v", dtype, kind, name, all)
	if len(results) > 0 {
		if at := results[0].(*Value).origin; at != nil && at.Line > 0 {
			text += fmt.Sprintf(" at %s:%d", path.Base(at.File), at.Line)
		}
	}
	return text
}
