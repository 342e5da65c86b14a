package screen

import (
	"strings"
	"testing"
)

// A dimension of a convolution is a number of its own attribute; those of other operations, of
// types and of the names that follow are not.
func TestDimensionNumbersEndWhereTheAttributeEnds(t *testing.T) {
	const (
		gather  = `%o = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4096>}> : (tensor<50257x4096xf32>, tensor<2048x1xi32>) -> tensor<2048x4096xf32>`
		pretty  = `%o = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], lhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x1024x1024x3xf32>, tensor<7x7x3x2048xf32>) -> tensor<8x512x512x2048xf32>`
		generic = `%o = "stablehlo.convolution"(%x, %k) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64}> : (tensor<8x1024x1024x3xf32>, tensor<7x7x3x2048xf32>) -> tensor<8x1018x1018x2048xf32>`
		next    = "\n%4393 = stablehlo.add %o, %o : tensor<f32>"
	)
	for _, legal := range []string{gather, pretty, generic, strings.Replace(generic, "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>", "#c", 1)} {
		for _, text := range []string{legal + next, "#c = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>\n" + legal + next} {
			if _, err := MLIR([]byte(text), Options{Host: true}); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	for _, text := range []string{
		strings.Replace(pretty, "[b, 0,", "[b, 9999999,", 1),
		strings.Replace(pretty, "->[b, 0,", " -> [b, 9999999,", 1),
		strings.Replace(pretty, "x[0, ", " x [0x98967f, ", 1),
		strings.Replace(generic, "x[0,", "x[9999999,", 1),
		"#c = #stablehlo.conv<[b, 0, 9999999, f]x[0, 1, i, o]->[b, 0, 1, f]>\n#d = #c\n" + strings.Replace(generic, "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>", "#d", 1),
		strings.Replace(generic, "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>", "#stablehlo.conv<raw input_batch_dimension = 9999999>", 1),
	} {
		if _, err := MLIR([]byte(text), Options{}); err == nil || !strings.Contains(err.Error(), "9999999") || !strings.Contains(err.Error(), "stablehlo.convolution") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
