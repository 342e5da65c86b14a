package screen

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
)

// operationsOf are the operations of a text, those within others after these.
func operationsOf(text string) (all []*Operation) {
	top, _ := read(text)
	var walk func(r *Region)
	walk = func(r *Region) {
		for _, op := range r.Ops {
			all = append(all, op)
			for _, inner := range op.Regions {
				walk(inner)
			}
		}
	}
	walk(top)
	return all
}

// Operations are told from each other, and from words of attributes, texts and locations.
func TestOperationsBeginWhereTheLastOneEnds(t *testing.T) {
	text := `
#b = #stablehlo.bounds<4> // "stablehlo.infeed"()
!t = tensor<?xf32, #b>
module @m attributes {mhlo.a = "stablehlo.infeed(", mhlo.unit, mhlo.d = {x = [1, 2]}} {
  sdy.mesh @mesh = <["a"=2]>
  func.func public @main(%arg0: tensor<4xf32> {mhlo.sharding = "{replicated}"} loc("x"("y")), %arg1: !t) -> (tensor<4xf32> {jax.result_info = "out"}, !t) attributes {} {
    %c, %d:2 = "stablehlo.f"(%arg0, %arg1#1) <{a = array<i64: 1>}> ({ ^bb0(%x: tensor<f32>): stablehlo.return %x : tensor<f32> }, { stablehlo.return }) {b = "}"} : (tensor<4xf32>, !t) -> (i1, i2, i3) loc(#loc1)
    %0 = stablehlo.reduce(%arg0 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %c) across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
     reducer(%p: tensor<f32>, %q: tensor<f32>) {
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }
    %2:2 = stablehlo.while(%i = %c, %v = %arg0) : tensor<i32>, tensor<4xf32> attributes {n = 1}
     cond { %l = stablehlo.compare LT, %i, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1> } do { stablehlo.return %i, %v : tensor<i32>, tensor<4xf32> }
    %3 = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [2]} {f = 1 : i64} : (tensor<1x4x1xf32>, tensor<2x1x1xf32>) -> tensor<1x3x1xf32>
    %4 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"a"}]>] out_shardings=[<@mesh, [{"a"}]>] manual_axes={"a"} (%z: tensor<2xf32>) { sdy.return %z : tensor<2xf32> } : (tensor<4xf32>) -> tensor<4xf32>
    %5 = call @f(%4) : (tensor<4xf32>) -> tensor<4xf32> "stablehlo.g"(%5) : (tensor<4xf32>) -> ()
    %6 = stablehlo.dot_general %5, %5, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
    %7 = stablehlo.composite "a.b" %6 {decomposition = @f} : (tensor<f32>) -> tensor<f32>
    return %5, %arg1 : tensor<4xf32>, !t
  } loc(#loc)
  func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
}`
	ops := operationsOf(text)
	require.Equal(t, strings.Fields(`builtin.module sdy.mesh func.func
		stablehlo.f stablehlo.return stablehlo.return stablehlo.reduce stablehlo.reduce stablehlo.add stablehlo.return
		stablehlo.while stablehlo.compare stablehlo.return stablehlo.return stablehlo.convolution sdy.manual_computation sdy.return
		func.call stablehlo.g stablehlo.dot_general stablehlo.composite func.return func.func func.return`), sortedByPlace(ops))
	by := map[string]*Operation{}
	for _, op := range ops {
		by[op.result()+op.Symbol] = op
	}
	assert.Equal(t, []Attr{{Key: "mhlo.a", Value: `"stablehlo.infeed("`}, {Key: "mhlo.unit", Value: ""}, {Key: "mhlo.d", Value: "{x = [1, 2]}"}}, by["m"].Attrs)
	assert.Equal(t, []Attr{{Key: "mhlo.sharding", Value: `"{replicated}"`}, {Key: "jax.result_info", Value: `"out"`}}, by["main"].Borders)
	assert.Equal(t, []string{"tensor<4xf32>", "!t"}, by["main"].Ins)
	assert.Equal(t, []string{"%arg0", "%arg1"}, by["main"].Regions[0].Args)
	assert.Equal(t, []string{"%c", "%d"}, by["%c"].Results)
	assert.Equal(t, []string{"%arg0", "%arg1#1"}, by["%c"].Operands)
	assert.Equal(t, []Attr{{Key: "a", Value: "array<i64: 1>"}, {Key: "b", Value: `"}"`}}, by["%c"].Attrs)
	assert.Equal(t, []string{"i1", "i2", "i3"}, by["%c"].Outs)
	assert.Equal(t, []Attr{{Key: "dimensions", Value: "[0]"}}, by["%0"].Attrs)
	assert.Equal(t, []string{"%p", "%q"}, by["%1"].Regions[0].Args)
	assert.Equal(t, []string{"%c", "%arg0"}, by["%2"].Operands)
	assert.Equal(t, []string{"%i", "%v"}, by["%2"].Regions[0].Args)
	assert.Equal(t, []Attr{{Key: "dim_numbers", Value: "[b, 0, f]x[0, i, o]->[b, 0, f]"}, {Key: "window", Value: "{stride = [2]}"}, {Key: "f", Value: "1 : i64"}}, by["%3"].Attrs)
	assert.Equal(t, []string{"%z"}, by["%4"].Regions[0].Args)
	assert.Equal(t, []Attr{{Key: "contracting_dims", Value: "[0] x [0]"}, {Key: "precision", Value: "[DEFAULT, DEFAULT]"}}, by["%6"].Attrs)
	assert.Equal(t, []string{"f"}, by["%7"].symbols())
}

// sortedByPlace are names of operations in the order in which they stand.
func sortedByPlace(ops []*Operation) []string {
	at := map[int]string{}
	for _, op := range ops {
		at[op.at] = op.Name
	}
	var names []string
	for _, place := range sortedKeys(at) {
		names = append(names, at[place])
	}
	return names
}

// A program of ten megabytes takes a fraction of a second, in either form, in one line too.
func TestLargeProgramsAreReadInLinearTime(t *testing.T) {
	const size = 10 << 20
	for name, line := range map[string]string{
		"custom":       " %%v%d = stablehlo.add %%x, %%x {a = [1, 2], b = \"c\"} : tensor<4xf32>\n",
		"generic":      " %%v%d = \"stablehlo.pad\"(%%x, %%c) <{edge_padding_low = array<i64: 1>, edge_padding_high = array<i64: 1>, interior_padding = array<i64: 0>}> : (tensor<4xf32>, tensor<f32>) -> tensor<6xf32>\n",
		"one line":     " %%v%d = stablehlo.add %%x, %%x : tensor<4xf32>",
		"no types":     " stablehlo.add%d",
		"open":         " %%v%d, ( %%x",
		"strings":      " \"a%d\" \"b\"",
		"alias":        "#v%d = #stablehlo.conv<[b, 0]x[0]->[b]>\n",
		"divisions":    " %%v%d = stablehlo.iota dim = 0 : tensor<4xi32> %%d = stablehlo.divide %%d, %%d : tensor<4xi32>\n",
		"many results": " %%v%d, %%b",
	} {
		var b strings.Builder
		b.WriteString("module { func.func @main(%x: tensor<4xf32>) -> () {\n")
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, line, i)
		}
		b.WriteString("return } }")
		code := []byte(b.String())
		runtime.GC() // of what was read before
		took := hangtest.Processor(t, func() { _, _ = MLIR(code, Options{Host: true}) })
		if took > slower*4*time.Second {
			t.Errorf("%s: %v", name, took)
		} else {
			t.Logf("%s: %v", name, took)
		}
	}
}
