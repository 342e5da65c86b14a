package gomlx_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
)

// TestAProgramOf10000Nodes is a chain that no compiler folds.
func TestAProgramOf10000Nodes(t *testing.T) {
	b := newBackend(t, grid)
	plugintest.Within(t, 3*time.Minute, func() {
		got := runOf(t, b, []tensor{{flat: []int32{1, 2, 3, 4, 5, 6, 7, 8}, dims: []int{8}}, {name: "/v", flat: []int32{3}}},
			func(f compute.Function, x []compute.Value) []compute.Value {
				do := must(t)
				v := x[0]
				for range 5000 {
					v = do(f.BitwiseXor(do(f.Mul(v, x[1])), x[0]))
				}
				return []compute.Value{v}
			})
		want := []int32{1, 2, 3, 4, 5, 6, 7, 8}
		for i := range want {
			for range 5000 {
				want[i] = want[i]*3 ^ int32(i+1)
			}
		}
		assert.Equal(t, want, got[0])
	})
}

// TestProgramsOfOddBorders have no parameters, no use for one, or parameters for results.
func TestProgramsOfOddBorders(t *testing.T) {
	for _, over := range []shape{grid, {"1x1", 1, 1}} {
		b := newBackend(t, over)
		t.Run(over.name, func(t *testing.T) {
			assert.Equal(t, []any{[]int32{42, 43}},
				runOf(t, b, nil, func(f compute.Function, _ []compute.Value) []compute.Value {
					return []compute.Value{must(t)(f.Constant([]int32{42, 43}, 2))}
				}), "no parameters")
			assert.Equal(t, []any{[]int32{0, 1, 2, 3, 4, 5, 6, 7}}, runOf(t, b, []tensor{eight, weights},
				func(f compute.Function, _ []compute.Value) []compute.Value {
					return []compute.Value{must(t)(f.Iota(shapes.Make(dtypes.Int32, 8), 0))}
				}), "parameters that nothing uses")
			assert.Equal(t, []any{weights.flat, eight.flat, weights.flat}, runOf(t, b, []tensor{eight, weights},
				func(_ compute.Function, x []compute.Value) []compute.Value {
					return []compute.Value{x[1], x[0], x[1]}
				}), "results that are parameters")

			assertFault(t, b.Builder("no results").Main().Return(nil, nil), "at least one output")
			_, err := b.Builder("no main").Compile()
			assertFault(t, err)
		})
	}
	b := newBackend(t, grid)
	twice := compiledOf(t, b, []tensor{weights}, func(_ compute.Function,
		x []compute.Value) []compute.Value {
		return []compute.Value{x[0], x[0]}
	})
	out, err := twice.Execute([]compute.Buffer{put(t, b, weights)}, []bool{true}, 0)
	require.NoError(t, err)
	out, err = twice.Execute(out[:1], []bool{true}, 0)
	require.NoError(t, err)
	assert.Equal(t, weights.flat, flatOf(t, out[0]), "one donated parameter, and two results that are it")
	assert.Equal(t, weights.flat, flatOf(t, out[1]))
	require.NoError(t, out[0].Finalize())
	assert.Equal(t, weights.flat, flatOf(t, out[1]), "two results share no memory")

	swap := compiledOf(t, b, []tensor{weights, {name: "/v", flat: weights.flat, dims: weights.dims}},
		func(_ compute.Function, x []compute.Value) []compute.Value {
			return []compute.Value{x[1], x[0]}
		})
	out, err = swap.Execute([]compute.Buffer{put(t, b, weights), put(t, b, eight)}, []bool{true, true}, 0)
	require.NoError(t, err)
	assert.Equal(t, eight.flat, flatOf(t, out[0]), "two variables that change places")
	assert.Equal(t, weights.flat, flatOf(t, out[1]))
}

// TestAnyNameIsFine uses names of programs and parameters that are invalid in MLIR or unusual.
func TestAnyNameIsFine(t *testing.T) {
	b := newBackend(t, shape{"2x2", 2, 2})
	names := []string{"", "/", "//", "main", "1a", "a b", "/a/b", "/a_b", "日本/語", "%x", "\"", "x\ny", "a\\", "\x00",
		"\xff", "true", "func", "arg0",
		strings.Repeat("/long", 2000), "/{replica}", "sdy.mesh", "@mesh", "</script>"}
	builder := b.Builder("%\"\n日本" + strings.Repeat("x", 5000))
	f := builder.Main()
	var sum compute.Value
	var in []compute.Buffer
	for i, name := range names {
		x, err := f.Parameter(name, shapes.Make(dtypes.Int32, 2), nil)
		require.NoError(t, err, "%.20q", name)
		if sum == nil {
			sum = x
		} else {
			sum = must(t)(f.Add(sum, x))
		}
		in = append(in, put(t, b, tensor{flat: []int32{1, int32(i)}, dims: []int{2}}))
	}
	require.NoError(t, f.Return([]compute.Value{sum}, nil))
	exe, err := builder.Compile()
	require.NoError(t, err)
	out, err := exe.Execute(in, nil, 0)
	require.NoError(t, err)
	assert.Equal(t, []int32{int32(len(names)), int32(len(names) * (len(names) - 1) / 2)}, flatOf(t, out[0]))
	got, _ := exe.Inputs()
	assert.Equal(t, names, got)
}

// TestForeignNodesAreRefused takes nodes of another program, also into the body of a loop.
func TestForeignNodesAreRefused(t *testing.T) {
	b := newBackend(t, grid)
	other := must(t)(b.Builder("other").Main().Constant([]float32{1}))
	f := b.Builder("mine").Main()
	mine := must(t)(f.Constant([]float32{1}))
	_, err := f.Add(mine, other)
	assertFault(t, err)
	inner, err := f.Closure()
	require.NoError(t, err)
	_, err = inner.Add(mine, other)
	assertFault(t, err)
	_, err = inner.Neg(nil)
	assertFault(t, err)
	exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node {
		stranger := graph.Const(graph.NewGraph(b, "stranger"), float32(1))
		body := graph.NewClosure(x.Graph(), func(g *graph.Graph) []*graph.Node {
			v := graph.Parameter(g, "v", x.Shape())
			return []*graph.Node{graph.Add(v, stranger)}
		})
		cond := graph.NewClosure(x.Graph(), func(g *graph.Graph) []*graph.Node {
			v := graph.Parameter(g, "v", x.Shape())
			return []*graph.Node{graph.LessThan(graph.ReduceAllMax(v), graph.Const(g, float32(10)))}
		})
		return graph.While(cond, body, x)[0]
	})
	require.NoError(t, err)
	_, err = exec.Call(eight.flat)
	require.Error(t, err)
}

// TestVariablesThatChangeTheirLayout alternates programs that need one variable in different
// layouts. The results are correct, and memory does not grow.
func TestVariablesThatChangeTheirLayout(t *testing.T) {
	b := newBackend(t, grid, gomlx.Options{Rules: logical.Rules{
		logical.Match("^/rows/", logical.SplitOverAxes("logical")), logical.Match("^/all/",
			logical.SplitOverAxes("replica,logical")),
	}})
	n := tensor{flat: make([]int32, 16), dims: []int{16}}
	var exes []*gomlx.Executable
	for _, name := range []string{"/rows/w", "/all/w", "/whole/w", "data"} {
		n.name = name
		exes = append(exes, compiledOf(t, b, []tensor{n}, func(f compute.Function, x []compute.Value) []compute.Value {
			one := must(t)(f.Constant([]int32{1}))
			return []compute.Value{must(t)(f.Add(x[0], must(t)(f.Reshape(one))))}
		}))
	}
	variable := []compute.Buffer{put(t, b, n)}
	live := 0
	for i := range 200 {
		var err error
		donate := []bool{i%3 != 0}
		before := variable[0]
		variable, err = exes[i*7%len(exes)].Execute(variable, donate, 0)
		require.NoError(t, err)
		require.NoError(t, before.Finalize())
		switch {
		case i == 20:
			live = b.NumLive()
		case i > 20:
			require.LessOrEqual(t, b.NumLive(), live)
		}
		if i%40 == 0 {
			assert.Equal(t, int32(i+1), flatOf(t, variable[0]).([]int32)[15])
		}
	}
	for i, v := range flatOf(t, variable[0]).([]int32) {
		require.Equal(t, int32(200), v, "element %d", i)
	}
}

// TestHostileRules tests rules that match nothing or too much, contradict each other, or name axes
// that do not exist.
func TestHostileRules(t *testing.T) {
	sys := plugintest.System(t, 8)
	w := tensor{name: "/a/weights", flat: make([]float32, 8*6), dims: []int{8, 6}}
	for i := range w.flat.([]float32) {
		w.flat.([]float32)[i] = float32(i)
	}
	for name, test := range map[string]struct {
		rules logical.Rules
		want  string // of the error of New, or of the compilation; none if it is empty
	}{
		"nothing": {rules: logical.Rules{{Pattern: logical.Match("^/z$", logical.SplitOverAxes("logical",
			"")).Pattern, Annotation: logical.SplitOverAxes("logical", ""), Optional: true}}},
		"too much": {rules: logical.Rules{logical.Match("", logical.SplitOverAxes("logical", "")),
			logical.Match("", logical.SplitOverAxes("", "logical"))}},
		"what contradicts": {rules: logical.Rules{logical.Match("/a", logical.Replicated()), logical.Match("/weights",
			logical.SplitOverAxes("logical", ""))}},
		"another rank": {rules: logical.Rules{logical.Match("/a", logical.SplitOverAxes("logical"))},
			want: "splits variables of rank 1"},
		"what cannot divide": {rules: logical.Rules{logical.Match("/a", logical.SplitOverAxes("", "replica"))}},
		"every axis":         {rules: logical.Rules{logical.Match("/a", logical.SplitOverAxes("replica,logical", ""))}},
		"an unknown axis": {rules: logical.Rules{logical.Match("/a", logical.SplitOverAxes("modell", ""))},
			want: "modell"},
		"one axis twice": {rules: logical.Rules{logical.Match("/a", logical.SplitOverAxes("logical", "logical"))},
			want: "logical"},
		"no pattern": {rules: logical.Rules{{Annotation: logical.SplitOverAxes("logical", "")}}, want: "pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := gomlx.New(sys, gomlx.Options{LogicalDevices: 2, Rules: test.rules})
			if err == nil {
				defer func() { require.NoError(t, b.Close()) }()
			}
			if err == nil && test.want != "" {
				_, err = tryCompile(t, b, []tensor{w, eight}, func(_ compute.Function,
					x []compute.Value) []compute.Value {
					return x
				})
			}
			if test.want != "" {
				assertFault(t, err, test.want)
				return
			}
			require.NoError(t, err)
			got := runOf(t, b, []tensor{w, {flat: eight.flat, dims: []int{1, 8}}}, func(f compute.Function,
				x []compute.Value) []compute.Value {
				sum := must(t)(f.ReduceSum(must(t)(f.Mul(x[0], must(t)(f.Reshape(x[1], 8, 1)))), 0))
				return []compute.Value{sum, x[0]}
			})
			var want []float32
			for column := range 6 {
				sum := float32(0)
				for row := range 8 {
					sum += float32(row*6+column) * float32(row+1)
				}
				want = append(want, sum)
			}
			assert.InDeltaSlice(t, want, got[0], 1e-2)
			assert.Equal(t, w.flat, got[1])
		})
	}
}

// TestHostileMeshes requests meshes that do not fit the devices.
func TestHostileMeshes(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, opts := range []gomlx.Options{{LogicalDevices: 3}, {LogicalDevices: 16}, {LogicalDevices: -1}} {
		_, err := gomlx.New(sys, opts)
		assertFault(t, err, fmt.Sprint(opts.LogicalDevices))
	}
	plugintest.Within(t, 30*time.Second, func() {
		for config, want := range map[string]string{
			"devices=0": "devices", "devices=-1": "devices", "devices=100000": "devices", "devices=8,logical=3": "3 logical",
			"devices=99999999999999999999":        "devices",
			"devices=4,rules=/nowhere/rules.json": "/nowhere/rules.json", "plugin=/nowhere/plugin.so": "/nowhere/plugin.so",
			"colour=red":            "colour",
			"plugin=cuda,devices=2": "2 is a number of CPU devices",
		} {
			b, err := gomlx.NewFromConfig(t.Context(), config, gomlx.Options{})
			if err == nil {
				_ = b.Close()
			}
			assertFault(t, err, want)
		}
	})
}
