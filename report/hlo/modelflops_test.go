package hlo

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
		"pretty": {`%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] ` +
			`: (tensor<16x8xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>`, 2 * 16 * 8 * 32},
		"batched": {`%0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1, 2] x [1, 2] ` +
			`: (tensor<3x5x7xf32>, tensor<3x5x7xf32>) -> tensor<3xf32>`, 2 * 3 * 5 * 7},
		"plain": {`%0 = stablehlo.dot %a, %b : (tensor<16x8xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>`,
			2 * 16 * 8 * 32},
		"convolution": {`%0 = "stablehlo.convolution"(%x, %k) { dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, ` +
			`i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64 } : (tensor<2x8x8x3xf32>, tensor<3x3x3x4xf32>) -> ` +
			`tensor<2x8x8x4xf32>`, 2 * 2 * 8 * 8 * 4 * 3 * 3 * 3},
		"two": {strings.Repeat("%0 = stablehlo.dot %a, %b : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>\n",
			2), 32},
		"nothing":  {`%0 = stablehlo.add %a, %b : tensor<16x8xf32>`, 0},
		"nonsense": {`stablehlo.dot_general stablehlo.convolution( x[ ]-> : (tensor<`, 0},
	} {
		flops, unknown := ModelFLOPs([]byte(c.text))
		assert.Equal(t, c.want, flops, name)
		assert.Zero(t, unknown, name)
	}
}

// The same programs in the custom and in the generic form.
func TestModelFLOPsAreThoseOfEitherForm(t *testing.T) {
	pretty, err := os.ReadFile("testdata/stablehlo.mlir")
	require.NoError(t, err)
	generic, err := os.ReadFile("testdata/generic.mlir")
	require.NoError(t, err)
	want, loops := ModelFLOPs(pretty)
	assert.Positive(t, want)
	got, unknown := ModelFLOPs(generic)
	assert.Equal(t, want, got)
	assert.Equal(t, loops, unknown)
}

func TestModelFLOPsCountCallsOfTheGenericForm(t *testing.T) {
	const dot = `%d = "stablehlo.dot"(%a, %b) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>` + "\n"
	flops, _ := ModelFLOPs([]byte(`"func.func"() <{sym_name = "main"}> ({
  "func.call"() <{callee = @half}> : () -> ()
  "func.call"() <{callee = @half}> : () -> ()
}) : () -> ()
"func.func"() <{sym_name = "half"}> ({
` + dot + `}) : () -> ()
`))
	assert.Equal(t, 2*16.0, flops)
}

// Compilers remove products whose result is not read.
func TestModelFLOPsLeaveOutProductsThatNothingReads(t *testing.T) {
	const program = `module {
  func.func @main(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %0 = call @step(%a) : (tensor<2x2xf32>) -> tensor<2x2xf32>
    return %0 : tensor<2x2xf32>
  }
  func.func private @step(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %n = stablehlo.constant dense<3> : tensor<i32>
    %0 = stablehlo.dot %a, %a : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %2 = stablehlo.dot %a, %a : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %3 = stablehlo.dot %a, %a : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %4 = stablehlo.constant dense<0> : tensor<i32>
    %5:2 = stablehlo.while(%i = %4, %x = %2) : tensor<i32>, tensor<2x2xf32>
     cond {
      %8 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    } do {
      %9 = stablehlo.constant dense<1> : tensor<i32>
      %10 = stablehlo.add %i, %9 : tensor<i32>
      %11 = stablehlo.dot %x, %3 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %12 = stablehlo.dot %x, %3 : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      stablehlo.return %10, %11 : tensor<i32>, tensor<2x2xf32>
    }
    return %5#1 : tensor<2x2xf32>
  }
}`
	flops, unknown := ModelFLOPs([]byte(program))
	assert.Equal(t, (2+3)*16.0, flops)
	assert.Zero(t, unknown)
}

// The parser reads any text to its end, whatever its brackets.
func FuzzModelFLOPs(f *testing.F) {
	f.Add("%a:2 = \"stablehlo.while\"(%x, %y) ({ ^c(%i: tensor<i32>): \"stablehlo.return\"(%i) : (tensor<i32>) -> () " +
		"}, {}) {k = 3 : i64} : () -> ()")
	f.Add("} ) > // {\n%d = stablehlo.dot %a, %b : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>\n\"{ \\\" {")
	f.Add(strings.Repeat("module {", 2*maxRegions))
	f.Fuzz(func(t *testing.T, text string) {
		if flops, unknown := ModelFLOPs([]byte(text)); flops < 0 || unknown < 0 {
			t.Fatal(flops, unknown)
		}
	})
}
