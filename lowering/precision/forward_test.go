package precision_test

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// graphState is the traced state of a step with a float32 argument of shape [4 8].
type graphState struct {
	graph *graph.Graph
	text  string
	runs  int // of the step's code
	err   error
}

// trace traces a step like package strategy. build returns the results of the step.
func trace(t *testing.T, store *model.Store, build func(g *graph.Graph, x *graph.Node) []*graph.Node) (out graphState) {
	t.Helper()
	seen := &precision.TraceState{}
	for {
		again := func() bool {
			target := spmd.NewTrace(spmd.Options{})
			g := graph.NewGraph(target, "step")
			seen.Attach(g)
			model.SetStore(g, store)
			store.SetTraining(g, true)
			x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 4, 8))
			out.runs++
			var results []*graph.Node
			out.err = caught(func() { results = build(g, x) })
			if seen.NeedsRetrace() {
				return true
			}
			out.graph = g
			if out.err != nil {
				return false
			}
			var sig spmd.Signature
			for v := range store.IterVariables() {
				if v.ChangedInGraph(g) {
					results = append(results, v.NodeValue(g))
				}
			}
			require.NoError(t, g.Compile(results...))
			for h := range g.NumParameters() {
				sig.Arguments = append(sig.Arguments,
					spmd.Tensor{Name: g.GetParameterByHandle(graph.ParameterHandle(h)).GetParameterName()})
			}
			for i := range results {
				sig.Results = append(sig.Results, spmd.Tensor{Name: fmt.Sprint("result_", i)})
			}
			m, err := target.Module(g, sig)
			require.NoError(t, err)
			out.text = string(m.Text)
			return false
		}()
		if !again {
			return out
		}
	}
}

func caught(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	f()
	return nil
}

// forward returns a step whose results are the results of a forward part.
func forward(p precision.Policy, part func(scope *model.Scope, x *graph.Node) *graph.Node) func(g *graph.Graph,
	x *graph.Node) []*graph.Node {
	return func(g *graph.Graph, x *graph.Node) []*graph.Node {
		return p.Forward(g, []*graph.Node{x}, func(in []*graph.Node) []*graph.Node {
			return []*graph.Node{part(model.GetStore(g).RootScope(), in[0])}
		})
	}
}

func dense(scope *model.Scope, x *graph.Node) *graph.Node {
	return layers.Dense(scope.In("hidden"), x, true, 2)
}

func shapesOf(store *model.Store) map[string]string {
	all := map[string]string{}
	for v := range store.IterVariables() {
		all[v.Path()] = v.Shape().String()
	}
	return all
}

// count returns the number of matches of a pattern in the program's text.
func (out graphState) count(pattern string) int {
	return len(regexp.MustCompile(pattern).FindAllString(out.text, -1))
}

const product = `(?s)dot_general.{0,400}?\(tensor<4x8xbf16>, tensor<8x2xbf16>\) -> tensor<4x2xbf16>`

func TestForwardComputesInBFloat16AndStoresFloat32(t *testing.T) {
	store := model.NewStore()
	step := func(g *graph.Graph, x *graph.Node) []*graph.Node {
		y := forward(precision.MixedBFloat16, dense)(g, x)
		require.Equal(t, dtypes.Float32, y[0].DType())
		gradients := store.RootScope().BuildTrainableVariablesGradientsGraph(graph.ReduceAllSum(y[0]))
		for _, gradient := range gradients {
			require.Equal(t, dtypes.Float32, gradient.DType())
		}
		require.Len(t, gradients, 2)
		return append(y, gradients...)
	}
	first := trace(t, store, step)
	require.NoError(t, first.err)
	require.Equal(t, map[string]string{"/hidden/dense/weights": "(Float32)[8, 2]", "/hidden/dense/biases": "(Float32)[2]"},
		shapesOf(store))
	require.Equal(t, 1, first.count(product), first.text)
	require.Equal(t, 1, first.count(`%_hidden_dense_weights: tensor<8x2xf32>`))
	require.Equal(t, 2, first.runs, "the code runs twice")
	require.Equal(t, first.text, trace(t, store, step).text, "and the next trace is the same")
	require.Equal(t, shapesOf(store)["/hidden/dense/weights"], "(Float32)[8, 2]")
}

func TestForwardWithZeroPolicyChangesNothing(t *testing.T) {
	store := model.NewStore()
	with := trace(t, store, forward(precision.Policy{}, dense))
	without := trace(t, model.NewStore(), func(g *graph.Graph, x *graph.Node) []*graph.Node {
		return []*graph.Node{dense(model.GetStore(g).RootScope(), x)}
	})
	require.Equal(t, without.text, with.text)
	require.Equal(t, 1, with.runs)
	full := trace(t, model.NewStore(), forward(precision.Float32, dense))
	require.Equal(t, without.text, full.text, "float32 in, float32 out")
}

func TestLayersWithFloat32InputUseFloat32Variables(t *testing.T) {
	for _, known := range []bool{false, true} {
		store := model.NewStore()
		if known { // as a checkpoint leaves it
			store.VariableWithValue("/hidden/dense/weights", tensors.FromShape(shapes.Make(dtypes.Float32, 8, 2)))
			store.VariableWithValue("/hidden/dense/biases", []float32{1, 2})
			store.VariableWithValue("/logits/dense/weights", [][]float32{{1}, {2}})
		}
		out := trace(t, store, forward(precision.MixedBFloat16, func(scope *model.Scope, x *graph.Node) *graph.Node {
			h := dense(scope, x)
			require.Equal(t, dtypes.BFloat16, h.DType())
			return layers.Dense(scope.In("logits"), precision.Output(h), false, 1)
		}))
		require.NoError(t, out.err)
		require.Equal(t, 1, out.count(product))
		require.Equal(t, 1, out.count(`(?s)dot_general.{0,400}?\(tensor<4x2xf32>, tensor<2x1xf32>\) -> tensor<4x1xf32>`),
			out.text)
		require.Equal(t, "(Float32)[2, 1]", shapesOf(store)["/logits/dense/weights"])
		if known {
			require.Equal(t, []float32{1, 2}, store.GetVariable("/hidden/dense/biases").MustValue().Value(), "values stay")
		}
	}
}

func TestForwardCastsVariablesThatCodeHoldsOrLooksUp(t *testing.T) {
	store := model.NewStore()
	held := store.VariableWithValue("/held", float32(2))
	store.VariableWithValue("/looked", float32(3))
	paths := func() (all []string) {
		for v := range store.IterVariables() {
			all = append(all, v.Path())
		}
		return all
	}
	out := trace(t, store, forward(precision.MixedBFloat16, func(scope *model.Scope, x *graph.Node) *graph.Node {
		y := graph.Mul(dense(scope, x), held.NodeValue(x))
		return graph.Add(y, scope.GetVariable("looked").NodeValue(x))
	}))
	require.NoError(t, out.err)
	require.Equal(t, 3, out.runs)
	require.Equal(t, []string{"/held", "/looked", "/hidden/dense/weights", "/hidden/dense/biases"}, paths())
	require.Equal(t, dtypes.Float32, held.DType())
	require.Equal(t, float32(2), held.MustValue().Value())
}

// kept is a loader with one variable.
type kept struct{ path string }

func (k kept) LoadVariable(_ *model.Store, path string) (*tensors.Tensor, bool) {
	return tensors.FromValue([]float32{7, 8}), path == k.path
}
func (k kept) DeleteVariable(*model.Store, string) error { return nil }

func TestForwardReadsVariablesFromLoader(t *testing.T) {
	store := model.NewStore()
	store.SetLoader(kept{"/hidden/dense/biases"})
	out := trace(t, store, forward(precision.MixedBFloat16, dense))
	require.NoError(t, out.err)
	require.Equal(t, []float32{7, 8}, store.GetVariable("/hidden/dense/biases").MustValue().Value())
	require.Equal(t, kept{"/hidden/dense/biases"}, store.Loader())
}

func TestNewVariablesWithValueAreStoredInFloat32(t *testing.T) {
	store := model.NewStore()
	out := trace(t, store, forward(precision.MixedBFloat16, func(scope *model.Scope, x *graph.Node) *graph.Node {
		return norm.DynamicTanh(scope, x).Done()
	}))
	require.NoError(t, out.err)
	for v := range store.IterVariables() {
		require.Equal(t, dtypes.Float32, v.DType(), v.Path())
	}
	alpha := ""
	for path := range shapesOf(store) {
		if store.GetVariable(path).HasValue() {
			alpha = path
		}
	}
	require.Equal(t, float32(0.5), store.GetVariable(alpha).MustValue().Value())
}

func TestOutputReturnsOriginalArguments(t *testing.T) {
	trace(t, model.NewStore(), func(g *graph.Graph, x *graph.Node) []*graph.Node {
		return precision.MixedBFloat16.Forward(g, []*graph.Node{x, graph.Const(g, int32(1))},
			func(in []*graph.Node) []*graph.Node {
				require.Equal(t, dtypes.BFloat16, in[0].DType())
				require.Same(t, x, precision.Output(in[0]))
				require.Equal(t, dtypes.Int32, in[1].DType())
				require.Equal(t, dtypes.BFloat16, precision.Compute(graph.Const(g, float32(1))).DType())
				require.Same(t, in[0], precision.Compute(in[0]))
				y := precision.FullPrecision(in[0], func(x *graph.Node) *graph.Node {
					require.Equal(t, dtypes.Float32, x.DType())
					return graph.Tanh(x)
				})
				require.Equal(t, dtypes.BFloat16, y.DType())
				return []*graph.Node{y, in[1]}
			})
	})
	g := graph.NewGraph(spmd.NewTrace(spmd.Options{}), "plain")
	x := graph.Const(g, float32(1))
	same := func(x *graph.Node) *graph.Node { return x }
	require.Same(t, x, precision.Output(x))
	require.Same(t, x, precision.Compute(x))
	require.Same(t, x, precision.FullPrecision(x, same))
}

func TestSumsAccumulateInFloat32(t *testing.T) {
	sum := func(scope *model.Scope, x *graph.Node) *graph.Node {
		table := graph.ScatterSum(graph.ZerosLike(x), graph.Const(x.Graph(), [][]int32{{0}, {1}, {1}, {1}}), x, false, false)
		return graph.Add(graph.CumSum(graph.Softmax(table, -1), 1), graph.ReduceAllSum(x))
	}
	wide := trace(t, model.NewStore(), forward(precision.MixedBFloat16, sum))
	require.Zero(t, wide.count(`stablehlo.add"?\(?.* tensor<bf16>`), wide.text)
	narrow := trace(t, model.NewStore(), forward(precision.Policy{Compute: dtypes.BFloat16, Accumulate: dtypes.BFloat16},
		sum))
	require.NotZero(t, narrow.count(`stablehlo.add"?\(?.* tensor<bf16>`), narrow.text)
}

func TestPartialProductsUsePartialDtype(t *testing.T) {
	p := precision.MixedBFloat16
	p.Partial = dtypes.Float32
	out := trace(t, model.NewStore(), forward(p, dense))
	require.Equal(t, 1, out.count(`(?s)dot_general.{0,400}?\(tensor<4x8xbf16>, tensor<8x2xbf16>\) -> tensor<4x2xf32>`),
		out.text)
}

func TestForwardErrors(t *testing.T) {
	wide := func() *model.Store {
		store := model.NewStore()
		v := store.VariableWithShape("/hidden/dense/weights", shapes.Make(dtypes.BFloat16, 8, 2), initializer.Zero)
		require.True(t, v.Trainable)
		return store
	}
	mixed := precision.MixedBFloat16
	cases := map[string]struct {
		store *model.Store
		build func(g *graph.Graph, x *graph.Node) []*graph.Node
		text  string
	}{
		"an integer dtype": {build: forward(precision.Policy{Compute: dtypes.Int32}, dense),
			text: "Policy.Compute: Int32 is not a dtype"},
		"a forward part in a forward part": {build: forward(mixed, func(scope *model.Scope, x *graph.Node) *graph.Node {
			return mixed.Forward(x.Graph(), []*graph.Node{x}, func(in []*graph.Node) []*graph.Node { return in })[0]
		}), text: "forward part of another policy"},
		"a master in bfloat16": {store: wide(), build: forward(mixed, dense),
			text: `variable "/hidden/dense/weights": the store has it in BFloat16`},
		"code that asks for other variables": {build: func() func(g *graph.Graph, x *graph.Node) []*graph.Node {
			n := 0
			return forward(mixed, func(scope *model.Scope, x *graph.Node) *graph.Node {
				n++
				return layers.Dense(scope.In("layer_%d", n), x, false, 2)
			})
		}(), text: "not requested in the first trace of the step"},
		"a panic of the model's": {build: forward(mixed,
			func(*model.Scope, *graph.Node) *graph.Node { panic(errors.New("the model's own")) }), text: "the model's own"},
		"another shape": {store: storeOf(t, "/hidden/dense/weights", []float32{1}), build: forward(mixed, dense),
			text: "different shape"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			store := c.store
			if store == nil {
				store = model.NewStore()
			}
			before := shapesOf(store)
			out := trace(t, store, c.build)
			require.ErrorContains(t, out.err, c.text)
			for path, shape := range before {
				require.Equal(t, shape, shapesOf(store)[path], "the store is what it was")
			}
			require.Nil(t, store.Loader())
		})
	}
	g := graph.NewGraph(spmd.NewTrace(spmd.Options{}), "plain")
	err := caught(func() { mixed.Forward(g, nil, func([]*graph.Node) []*graph.Node { return nil }) })
	var fault *errkind.Fault
	require.ErrorAs(t, err, &fault)
	require.ErrorContains(t, err, "the graph does not belong to a step")
}

func storeOf(t *testing.T, path string, value any) *model.Store {
	t.Helper()
	store := model.NewStore()
	store.VariableWithValue(path, value)
	return store
}
