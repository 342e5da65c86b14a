package pjrt_test

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// byZero are values of four int32 that only folding makes 0, or that have a 0, from %x, an argument
// of four, %c, which is four of 7, and %n, which is 0.
var byZero = map[string]string{
	"x - x":                "%z = stablehlo.subtract %x, %x : T",
	"x * 0":                "%z = stablehlo.multiply %x, %n : T",
	"7 * 0":                "%z = \"stablehlo.multiply\"(%c, %n) : (T, T) -> T",
	"7 - 7":                "%z = stablehlo.subtract %c, %c : T",
	"x & 0":                "%z = stablehlo.and %x, %n : T",
	"a minimum":            "%z = stablehlo.minimum %c, %n : T",
	"a selection":          "%p = stablehlo.constant dense<true> : tensor<i1>\n%z = stablehlo.select %p, %n, %c : (tensor<i1>, T, T) -> T",
	"a comparison":         "%q = stablehlo.compare NE, %x, %x : (T, T) -> tensor<4xi1>\n%z = stablehlo.convert %q : (tensor<4xi1>) -> T",
	"a slice":              "%l = stablehlo.constant dense<[1, 0, 0, 0, 0]> : tensor<5xi32>\n%z = stablehlo.slice %l [1:5] : (tensor<5xi32>) -> T",
	"a concatenation":      "%h = stablehlo.constant dense<0> : tensor<2xi32>\n%z = stablehlo.concatenate %h, %h, dim = 0 : (tensor<2xi32>, tensor<2xi32>) -> T",
	"a gather":             "%i = stablehlo.constant dense<0> : tensor<1xi32>\n%z = \"stablehlo.gather\"(%n, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], start_index_map = [0]>, indices_are_sorted = false, slice_sizes = array<i64: 4>}> : (T, tensor<1xi32>) -> T",
	"a conversion":         "%h = stablehlo.constant dense<0.25> : tensor<4xf32>\n%z = stablehlo.convert %h : (tensor<4xf32>) -> T",
	"a bitcast":            "%h = stablehlo.constant dense<0.0> : tensor<4xf32>\n%z = stablehlo.bitcast_convert %h : (tensor<4xf32>) -> T",
	"a sum":                "%i = stablehlo.constant dense<0> : tensor<i32>\n%s = stablehlo.reduce(%n init: %i) applies stablehlo.add across dimensions = [0] : (T, tensor<i32>) -> tensor<i32>\n%z = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<i32>) -> T",
	"a sum of nothing":     "%e = stablehlo.slice %x [0:0] : (T) -> tensor<0xi32>\n%i = stablehlo.constant dense<0> : tensor<i32>\n%s = stablehlo.reduce(%e init: %i) applies stablehlo.add across dimensions = [0] : (tensor<0xi32>, tensor<i32>) -> tensor<i32>\n%z = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<i32>) -> T",
	"a product of nothing": "%e = stablehlo.slice %x [0:0] : (T) -> tensor<0xi32>\n%s = stablehlo.dot_general %e, %e, contracting_dims = [0] x [0] : (tensor<0xi32>, tensor<0xi32>) -> tensor<i32>\n%z = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<i32>) -> T",
	"a padding":            "%h = stablehlo.constant dense<0> : tensor<2xi32>\n%i = stablehlo.constant dense<0> : tensor<i32>\n%z = stablehlo.pad %h, %i, low = [1], high = [1], interior = [0] : (tensor<2xi32>, tensor<i32>) -> T",
	"a remainder":          "%g = stablehlo.constant dense<1> : T\n%z = stablehlo.remainder %x, %g : T",
	"a shift":              "%g = stablehlo.constant dense<40> : T\n%z = stablehlo.shift_right_logical %c, %g : T",
	"an aliased type":      "%z = stablehlo.subtract %x, %x : !t",
	"a call":               "%z = call @zero() : () -> T",
	"a branch":             "%p = stablehlo.constant dense<true> : tensor<i1>\n%z = \"stablehlo.if\"(%p) ({ stablehlo.return %n : T }, { stablehlo.return %c : T }) : (tensor<i1>) -> T",
	"a loop":               "%i = stablehlo.constant dense<0> : tensor<i32>\n%z, %j = stablehlo.while(%k = %n, %l = %i) : T, tensor<i32> cond { %u = stablehlo.constant dense<1> : tensor<i32>\n %m = stablehlo.compare LT, %l, %u : (tensor<i32>, tensor<i32>) -> tensor<i1>\n stablehlo.return %m : tensor<i1> } do { %u = stablehlo.constant dense<1> : tensor<i32>\n %m = stablehlo.add %l, %u : tensor<i32>\n %w = stablehlo.multiply %k, %k : T\n stablehlo.return %w, %m : T, tensor<i32> }",
}

// Compilers for the host divide what they take for constants with the processor's instruction. No
// division ends the process, and each gives what it gives at run time.
func TestADivisionByWhatFoldingMakesZeroIsNoTrap(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	for name, z := range byZero {
		for _, op := range []string{"divide", "remainder"} {
			for form, division := range map[string]string{
				"custom":    fmt.Sprintf("%%o = stablehlo.%s %%c, %%z : T", op),
				"generic":   fmt.Sprintf("%%o = \"stablehlo.%s\"(%%c, %%z) : (T, T) -> T", op),
				"in a loop": fmt.Sprintf("%%first = stablehlo.constant dense<0> : tensor<i32>\n%%o, %%t, %%v = stablehlo.while(%%a = %%c, %%b = %%first, %%d = %%z) : T, tensor<i32>, T cond { %%u = stablehlo.constant dense<1> : tensor<i32>\n %%m = stablehlo.compare LT, %%b, %%u : (tensor<i32>, tensor<i32>) -> tensor<i1>\n stablehlo.return %%m : tensor<i1> } do { %%u = stablehlo.constant dense<1> : tensor<i32>\n %%m = stablehlo.add %%b, %%u : tensor<i32>\n %%w = stablehlo.%s %%c, %%d : T\n stablehlo.return %%w, %%m, %%d : T, tensor<i32>, T }", op),
			} {
				t.Run(name+", "+op+", "+form, func(t *testing.T) {
					text := "!t = tensor<4xi32>\nmodule { func.func private @zero() -> T { %n = stablehlo.constant dense<0> : T\n return %n : T }\nfunc.func public @main(%x: T) -> T {\n%c = stablehlo.constant dense<7> : T\n%n = stablehlo.constant dense<0> : T\n" + z + "\n" + division + "\nreturn %o : T } }"
					want := []int32{-1, -1, -1, -1}
					if op == "remainder" {
						want = []int32{7, 7, 7, 7}
					}
					assert.Equal(t, want, ints(t, c, typed(text, "tensor<4xi32>")))
				})
			}
		}
	}
}

// Aliases stand for types, and for the elements of types.
func TestADivisionOfAliasedTypesIsNoTrap(t *testing.T) {
	c := plugintest.CPU(t, 2)
	for _, as := range []string{"!t", "tensor<4x!e>"} {
		p := typed("!e = i32\n!t = tensor<4x!e>\nfunc.func @main(%x: T) -> T {\n%c = stablehlo.constant dense<7> : tensor<4xi32>\n%z = stablehlo.subtract %x, %x : T\n%o = stablehlo.divide %c, %z : T\nreturn %o : T }", as)
		assert.Equal(t, []int32{-1, -1, -1, -1}, ints(t, c, p), as)
	}
}

// What a compiler does itself or the program does later has the same numbers.
func TestDivisionsOfConstantsKeepTheirNumbers(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	text := "module { func.func public @main(%x: T) -> T {\n%i = stablehlo.iota dim = 0 : T\n%n = stablehlo.constant dense<[-9, 9, 7, 8]> : T\n%d = stablehlo.subtract %i, %n : T\n%q = stablehlo.divide %n, %d : T\n%r = stablehlo.remainder %n, %d : T\n%h = stablehlo.constant dense<100> : T\n%s = stablehlo.multiply %q, %h : T\n%o = stablehlo.add %s, %r : T\nreturn %o : T } }"
	// By 9, -8, -5 and -5.
	assert.Equal(t, []int32{-100, -99, -98, -97}, ints(t, c, typed(text, "tensor<4xi32>")))
}

// typeName is how these texts write a type.
var typeName = regexp.MustCompile(`\bT\b`)

func typed(text, as string) pjrt.Program {
	return pjrt.Program{Code: []byte(typeName.ReplaceAllString(text, as))}
}

// ints runs a program of four int32 and gives its result.
func ints(t *testing.T, c *pjrt.Client, p pjrt.Program) []int32 {
	x, err := c.Compile(background, p, pjrt.CompileOptions{})
	require.NoError(t, err)
	defer x.Close()
	data := make([]byte, 16)
	for i := range 4 {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(i))
	}
	in, err := c.BufferFromHost(background, data, pjrt.S32, []int{4}, c.Devices()[0])
	require.NoError(t, err)
	defer in.Close()
	out := [][]*pjrt.Buffer{make([]*pjrt.Buffer, 1)}
	require.NoError(t, x.Execute(background, [][]*pjrt.Buffer{{in}}, out, pjrt.ExecuteOptions{}))
	defer out[0][0].Close()
	require.NoError(t, out[0][0].ToHost(background, data))
	got := make([]int32, 4)
	for i := range got {
		got[i] = int32(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return got
}
