package ir_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

var (
	vector = ir.TensorType(dtypes.Float32, 4)
	scalar = ir.TensorType(dtypes.Float32)
)

// sample returns a module with every form of statement: a loop in a function, in the forms of the
// builder and of this module.
func sample() *ir.Module {
	x, y := &ir.Value{Name: "x", Type: vector}, &ir.Value{Name: "0", Type: vector}
	a, b, sum := &ir.Value{Name: "a", Type: scalar}, &ir.Value{Name: "b", Type: scalar}, &ir.Value{Name: "1", Type: scalar}
	total, zero := &ir.Value{Name: "2", Type: scalar}, &ir.Value{Name: "zero", Type: scalar}
	nothing := ir.Zero(dtypes.Float32)
	add := &ir.Region{Label: "reductionFn", Arguments: []*ir.Value{a, b}, Body: []*ir.Statement{
		{Op: "stablehlo.add", Operands: []*ir.Value{a, b}, Results: []*ir.Value{sum}},
		{Op: "stablehlo.return", Operands: []*ir.Value{sum}},
	}}
	step := &ir.Function{
		Name: "step", Private: true,
		Parameters: []ir.Parameter{{Value: x, Attributes: []ir.Attribute{{Key: "jax.buffer_donor", Value: ir.Bool(true)}}}},
		Results:    []ir.Result{{Type: scalar}},
		Body: []*ir.Statement{
			{Op: "stablehlo.slice", Operands: []*ir.Value{x}, Results: []*ir.Value{y},
				Attributes: []ir.Attribute{{Key: "limit_indices", Value: ir.Ints{4}}, {Key: "start_indices", Value: ir.Ints{0}}}},
			{Op: "stablehlo.constant", Results: []*ir.Value{zero}, Form: ir.Custom,
				Attributes: []ir.Attribute{{Key: ir.ValueKey, Value: &ir.Dense{Type: scalar, Splat: &nothing}}}},
			{Op: "stablehlo.reduce", Operands: []*ir.Value{y, zero}, Results: []*ir.Value{total},
				Attributes: []ir.Attribute{{Key: "dimensions", Value: ir.Ints{0}}}, Regions: []*ir.Region{add}},
			{Op: "stablehlo.return", Operands: []*ir.Value{total}},
		},
	}
	called := &ir.Statement{Op: "func.call", Operands: []*ir.Value{x}, Results: ir.NewResults("stepped", scalar),
		ResultName: "stepped",
		Attributes: []ir.Attribute{{Key: ir.CalleeKey, Value: ir.Symbol("step")}}, Form: ir.Custom}
	once := &ir.Statement{Op: "stablehlo.if", Operands: []*ir.Value{{Name: "p", Type: ir.TensorType(dtypes.Bool)}},
		Results: ir.NewResults("out", scalar), ResultName: "out",
		Regions: []*ir.Region{{Body: []*ir.Statement{called, {Op: "stablehlo.return", Operands: called.Results,
			Form: ir.Custom}}}},
		Attributes: []ir.Attribute{{Key: "groups", Value: ir.Alias("groups")}, {Key: "global"}}, Form: ir.Generic}
	main := &ir.Function{
		Name: "main", Form: ir.Custom,
		Parameters: []ir.Parameter{{Value: x, Attributes: []ir.Attribute{{Key: "tf.aliasing_output", Value: ir.Int32(0)}}}},
		Results:    []ir.Result{{Type: scalar}},
		Body:       []*ir.Statement{once, {Op: "return", Operands: once.Results, Form: ir.Custom}},
	}
	return &ir.Module{Name: "sample", Attributes: []ir.Attribute{{Key: "mhlo.num_replicas", Value: ir.Int32(1)}},
		Aliases:   []ir.Attribute{{Key: "groups", Value: ir.Raw("dense<0>")}},
		Meshes:    []ir.Attr{ir.Raw("sdy.mesh @mesh = <[]>")},
		Functions: []*ir.Function{main, step}}
}

func TestAModuleIsWritten(t *testing.T) {
	text, _, err := sample().Text()
	require.NoError(t, err)
	assert.Equal(t, `#groups = dense<0>
module @sample attributes {mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <[]>
  func.func @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<f32>) {
    %out:1 = "stablehlo.if"(%p) ({
      %stepped:1 = func.call @step(%x) : (tensor<4xf32>) -> (tensor<f32>)
      stablehlo.return %stepped#0 : tensor<f32>
    }) {groups = #groups, global} : (tensor<i1>) -> (tensor<f32>)
    return %out#0 : tensor<f32>
  }
  func.func private @step(%x: tensor<4xf32> { jax.buffer_donor = true }) -> tensor<f32> {
    %0 = "stablehlo.slice"(%x) {
      limit_indices = array<i64: 4>,
      start_indices = array<i64: 0>
    } : (tensor<4xf32>) -> tensor<4xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = "stablehlo.reduce"(%0, %zero) ({
      ^reductionFn(%a: tensor<f32>, %b: tensor<f32>) :
          %1 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
          "stablehlo.return"(%1) : (tensor<f32>) -> ()
    }) { dimensions = array<i64: 0> } : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%2) : (tensor<f32>) -> ()
  }
}
`, string(text))
	again, _, err := sample().Text()
	require.NoError(t, err)
	assert.Equal(t, string(text), string(again))
}

func TestAPlaceholderHasNoText(t *testing.T) {
	m := sample()
	m.Functions[1].Body[0] = &ir.Statement{Placeholder: struct{}{}, Results: m.Functions[1].Body[0].Results}
	_, _, err := m.Text()
	assert.ErrorContains(t, err, "placeholder struct {}")
}
