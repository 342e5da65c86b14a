package report

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestModelFLOPsOfEveryForm(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want float64
	}{
		"generic": {`    %0 = "stablehlo.dot_general"(%a, %b) {
      dot_dimension_numbers = #stablehlo.dot<
  lhs_batching_dimensions = [],
  rhs_batching_dimensions = [],
  lhs_contracting_dimensions = [1],
  rhs_contracting_dimensions = [0]
>,
      precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]
    } : (tensor<16x8xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>`, 2 * 16 * 8 * 32},
		"pretty":      {`%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x8xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>`, 2 * 16 * 8 * 32},
		"batched":     {`%0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1, 2] x [1, 2] : (tensor<3x5x7xf32>, tensor<3x5x7xf32>) -> tensor<3xf32>`, 2 * 3 * 5 * 7},
		"plain":       {`%0 = stablehlo.dot %a, %b : (tensor<16x8xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>`, 2 * 16 * 8 * 32},
		"convolution": {`%0 = "stablehlo.convolution"(%x, %k) { dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64 } : (tensor<2x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x8x8x4xf32>`, 2 * 2 * 8 * 8 * 4 * 3 * 3 * 3},
		"two":         {strings.Repeat("%0 = stablehlo.dot %a, %b : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>\n", 2), 32},
		"nothing":     {`%0 = stablehlo.add %a, %b : tensor<16x8xf32>`, 0},
		"nonsense":    {`stablehlo.dot_general stablehlo.convolution( x[ ]-> : (tensor<`, 0},
	} {
		flops, unknown := modelFLOPs([]byte(c.text))
		assert.Equal(t, c.want, flops, name)
		assert.Zero(t, unknown, name)
	}
}

// product is a matrix product of 2 x 2 x 2 x 2 operations.
const product2 = "      %d = stablehlo.dot %a, %b : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>\n"

func TestModelFLOPsCountEachRoundOfALoop(t *testing.T) {
	pretty := func(compare, body, before string) string {
		return `  func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %c2 = stablehlo.constant dense<2> : tensor<i32>
    %n = stablehlo.constant dense<24> : tensor<i32>
` + before + `    %r:2 = stablehlo.while(%i = %c0, %y = %x) : tensor<i32>, tensor<2x2xf32>
    cond {
      %p = stablehlo.compare ` + compare + `, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
` + product2 + body + `      stablehlo.return %next, %d : tensor<i32>, tensor<2x2xf32>
    }
    return %r#1 : tensor<2x2xf32>
  }
`
	}
	one := "      %one = stablehlo.constant dense<1> : tensor<i32>\n      %next = stablehlo.add %i, %one : tensor<i32>\n"
	generic := `  func.func @main(%x: tensor<2x2xf32>) {
      %first = stablehlo.constant dense<0> : tensor<i32>
      %loop:2 = "stablehlo.while"(%first, %x) ({
      ^more(%count: tensor<i32>, %before0: tensor<2x2xf32>):
        %steps = stablehlo.constant dense<7> : tensor<i32>
        %again = stablehlo.compare LT, %count, %steps : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %again : tensor<i1>
      }, {
      ^step(%index: tensor<i32>, %carried0: tensor<2x2xf32>):
        %stepped = func.call @step(%carried0) : (tensor<2x2xf32>) -> tensor<2x2xf32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %index, %one : tensor<i32>
        stablehlo.return %next, %stepped : tensor<i32>, tensor<2x2xf32>
      }) : (tensor<i32>, tensor<2x2xf32>) -> (tensor<i32>, tensor<2x2xf32>)
  }
  func.func private @step(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
` + product2 + `    %twice = func.call @half(%d) : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %again = func.call @half(%twice) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  }
  func.func private @half(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
` + product2 + "  }\n"
	for name, c := range map[string]struct {
		text    string
		rounds  float64
		unknown int
	}{
		"a counter":                {pretty("LT, %i, %n", one, ""), 24, 0},
		"a counter from behind":    {pretty("GT, %n, %i", one, ""), 24, 0},
		"one round more":           {pretty("LE, %i, %n", one, ""), 25, 0},
		"by twos":                  {pretty("LT, %i, %n", "      %next = stablehlo.add %c2, %i : tensor<i32>\n", ""), 12, 0},
		"an unknown limit":         {pretty("LT, %i, %m", one, ""), 1, 1},
		"an unknown step":          {pretty("LT, %i, %n", "      %next = stablehlo.add %i, %k : tensor<i32>\n", ""), 1, 1},
		"in a loop and in calls":   {generic, 7 * 3, 0},
		"beside one":               {pretty("LT, %i, %n", one, product2), 25, 0},
		"a function no loop calls": {pretty("LT, %i, %n", one, "") + "  func.func @other() {\n" + product2 + "  }\n", 25, 0},
		"a loop that is cut":       {"stablehlo.while(%i = %c0) : tensor<i32> cond { " + product2, 1, 0},
	} {
		flops, unknown := modelFLOPs([]byte(c.text))
		assert.Equal(t, 16*c.rounds, flops, name)
		assert.Equal(t, c.unknown, unknown, name)
	}
}

// The same programs are there in the pretty form and in the generic one.
func TestModelFLOPsAreThoseOfEitherForm(t *testing.T) {
	pretty, err := os.ReadFile("../internal/screen/testdata/stablehlo.mlir")
	require.NoError(t, err)
	generic, err := os.ReadFile("../internal/screen/testdata/generic.mlir")
	require.NoError(t, err)
	want, loops := modelFLOPs(pretty)
	assert.Positive(t, want)
	got, unknown := modelFLOPs(generic)
	assert.Equal(t, want, got)
	assert.Equal(t, loops, unknown)
}

func TestModelFLOPsCountCallsOfTheGenericForm(t *testing.T) {
	const dot = `%d = "stablehlo.dot"(%a, %b) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>` + "\n"
	flops, _ := modelFLOPs([]byte(`"func.func"() <{sym_name = "main"}> ({
  "func.call"() <{callee = @half}> : () -> ()
  "func.call"() <{callee = @half}> : () -> ()
}) : () -> ()
"func.func"() <{sym_name = "half"}> ({
` + dot + `}) : () -> ()
`))
	assert.Equal(t, 2*16.0, flops)
}
