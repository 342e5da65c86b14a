package ir_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

const gather = "#stablehlo.gather<\n  offset_dims = [1, 2],\n  collapsed_slice_dims = [],\n  index_vector_dim = 1>"

func TestAttributesOfTheBuilderBecomeValues(t *testing.T) {
	for text, want := range map[string]ir.Attr{
		"array<i64>":             ir.Ints(nil),
		"array<i64: 1, -2>":      ir.Ints{1, -2},
		"array<i1: false, true>": ir.Raw("array<i1: false, true>"),
		"@callee":                ir.Symbol("callee"),
		"dense<[[0, 1], [-2, 3]]> : tensor<2x2xi64>": ir.IntMatrix{{0, 1}, {-2, 3}},
		"dense<[]> : tensor<0x2xi64>":                ir.IntMatrix(nil),
		"dense<[1, 2]> : tensor<2xi64>":              ir.Raw("dense<[1, 2]> : tensor<2xi64>"),
		"#stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>": ir.ConvDimensionNumbers{{"b", "0", "f"}, {"0", "i", "o"},
			{"b", "0", "f"}},
		"#stablehlo<precision HIGH>": ir.Enum{Name: "precision", Value: "HIGH"},
		gather: ir.Struct{Name: "stablehlo.gather", Fields: []ir.Field{
			{Name: "offset_dims", Dims: []int{1, 2}}, {Name: "collapsed_slice_dims"}, {Name: "index_vector_dim", Dims: []int{1},
				IsScalar: true}}},
		// A text with another format than Append writes must stay Raw.
		"array<i64:1>":                        ir.Raw("array<i64:1>"),
		"#stablehlo.dot<\n  precise = yes\n>": ir.Raw("#stablehlo.dot<\n  precise = yes\n>"),
	} {
		got := ir.ParseAttr(text)
		assert.Equal(t, want, got, text)
		assert.Equal(t, text, string(got.Append(nil)))
	}
	assert.Equal(t, []int{1, 2}, ir.ParseAttr(gather).(ir.Struct).Dims("offset_dims"))
	assert.Nil(t, ir.ParseAttr(gather).(ir.Struct).Dims("start_index_map"))
}
