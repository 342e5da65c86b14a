package ir_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

func TestAttributesAreWritten(t *testing.T) {
	one := ir.Integer(1)
	for want, a := range map[string]ir.Attr{
		"5 : i64":                        ir.Int(5),
		"-1 : i32":                       ir.Int32(-1),
		"true":                           ir.Bool(true),
		`"a\"b"`:                         ir.String(`a"b`),
		"@f":                             ir.Symbol("f"),
		"0.5 : f32":                      ir.Float32(0.5),
		"7.62939453125e-06 : f32":        ir.Float32(1. / 131072),
		"3.0 : f32":                      ir.Float32(3),
		"0x7f800000 : f32":               ir.Float32(math.Inf(1)),
		"dense<1> : tensor<2xi32>":       &ir.Dense{Type: ir.TensorType(dtypes.Int32, 2), Splat: &one},
		"dense<> : tensor<0xi32>":        &ir.Dense{Type: ir.TensorType(dtypes.Int32, 0)},
		`dense<"0xFF00"> : tensor<2xi8>`: &ir.Dense{Type: ir.TensorType(dtypes.Int8, 2), Bytes: []byte{255, 0}},
		"dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>": &ir.Dense{Type: ir.TensorType(dtypes.Int32, 2, 2),
			Numbers: []ir.Number{one, ir.Integer(2), ir.Integer(3), ir.Integer(4)}},
	} {
		assert.Equal(t, want, string(a.Append(nil)))
	}
	assert.Equal(t, 2, (&ir.Dense{Type: ir.TensorType(dtypes.Int32, 1, 1), Numbers: []ir.Number{one}}).Depth())
	assert.Equal(t, 0, (&ir.Dense{Type: ir.TensorType(dtypes.Int32, 1, 1), Splat: &one}).Depth())
}
