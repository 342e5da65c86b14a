package lowering_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// closure adds a closure with the given body to f.
func closure(t *testing.T, f compute.Function, body func(c compute.Function) []compute.Value) compute.Function {
	t.Helper()
	c, err := f.Closure()
	require.NoError(t, err)
	require.NoError(t, c.Return(body(c), nil))
	return c
}

func TestOpsLandInTheFunctionTheyWereAskedOf(t *testing.T) {
	got := lower(t, lowering.Options{}, func(f compute.Function) []compute.Value {
		do := must(t)
		x := do(f.Parameter("x", f32(2), nil))
		p := do(f.Parameter("p", shapes.Make(dtypes.Bool), nil))
		// Both operands belong to the enclosing function, and so does one result.
		out, err := f.If(p,
			closure(t, f, func(c compute.Function) []compute.Value { return []compute.Value{do(c.Add(x, x))} }),
			closure(t, f, func(compute.Function) []compute.Value { return []compute.Value{x} }))
		require.NoError(t, err)
		return out
	})
	inside := got[strings.Index(got, "^true_branch"):strings.Index(got, "^false_branch")]
	assert.Contains(t, inside, `"stablehlo.add"(%x, %x)`)
	assert.Contains(t, got[strings.Index(got, "^false_branch"):], `"stablehlo.return"(%x)`)
}

func TestNestedClosuresReachAllEnclosingFunctions(t *testing.T) {
	got := lower(t, lowering.Options{}, func(f compute.Function) []compute.Value {
		do := must(t)
		x := do(f.Parameter("x", f32(), nil))
		p := do(f.Parameter("p", shapes.Make(dtypes.Bool), nil))
		same := func(v compute.Value) func(c compute.Function) []compute.Value {
			return func(c compute.Function) []compute.Value { return []compute.Value{do(c.Neg(v))} }
		}
		outer := closure(t, f, func(c compute.Function) []compute.Value {
			y := do(c.Exp(x))
			out, err := c.If(p, closure(t, c, same(x)), closure(t, c, same(y)))
			require.NoError(t, err)
			return out
		})
		out, err := f.If(p, outer, closure(t, f, same(x)))
		require.NoError(t, err)
		return out
	})
	assert.Equal(t, 3, count(got, "stablehlo.negate"))
	assert.Equal(t, 2, count(got, `"stablehlo.if"`))
}

func TestWhileAndSortWithClosuresOfEqualParameterNames(t *testing.T) {
	got := lower(t, lowering.Options{}, func(f compute.Function) []compute.Value {
		do := must(t)
		i := do(f.Parameter("i", shapes.Make(dtypes.Int32), nil))
		state := func(body func(c compute.Function, i compute.Value) compute.Value) compute.Function {
			return closure(t, f, func(c compute.Function) []compute.Value {
				return []compute.Value{body(c, do(c.Parameter("i", shapes.Make(dtypes.Int32), nil)))}
			})
		}
		out, err := f.While(
			state(func(c compute.Function, i compute.Value) compute.Value {
				return do(c.LessThan(i, do(c.Constant([]int32{10}))))
			}),
			state(func(c compute.Function, i compute.Value) compute.Value {
				return do(c.Add(i, do(c.Constant([]int32{1}))))
			}), i)
		require.NoError(t, err)
		return out
	})
	for _, arg := range []string{"%i:", "%i_1:", "%i_2:"} {
		assert.Contains(t, got, arg, "MLIR refuses region arguments named like an outer value")
	}
}

func TestCallsToOtherFunctions(t *testing.T) {
	b := lowering.New(lowering.Options{}).Builder("calls")
	do := must(t)
	g, err := b.NewFunction("my step")
	require.NoError(t, err)
	v := do(g.Parameter("v", f32(2), nil))
	require.NoError(t, g.Return([]compute.Value{do(g.Neg(v))}, nil))
	_, err = b.NewFunction("my step")
	assert.ErrorContains(t, err, "already exists")
	_, err = b.NewFunction("main")
	assert.ErrorContains(t, err, "already exists")

	f := b.Main()
	out, err := f.Call(g, do(f.Parameter("x", f32(2), nil)))
	require.NoError(t, err)
	_, err = f.Call(g)
	assert.ErrorContains(t, err, "takes 1 parameters, got 0")
	require.NoError(t, f.Return(out, nil))
	exe, err := b.Compile()
	require.NoError(t, err)
	got := string(text(t, exe.(*lowering.Executable).Program()))
	assert.Contains(t, got, "func.func @my_step(")
	assert.Contains(t, got, "callee = @my_step")
}

func TestIdentityHookMayEmitAnything(t *testing.T) {
	var inFunction []string
	opts := lowering.Options{Identity: func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		inFunction = append(inFunction, f.Name())
		return stablehlo.Concatenate(0, x, x)
	}}
	g := graph.NewGraph(lowering.New(opts), "hook")
	x := graph.Parameter(g, "x", f32(3))
	y := graph.IdentityWithCustomGradient(x, func(_, v *graph.Node) *graph.Node {
		return graph.Slice(v, graph.AxisRange(0, 3))
	})
	assert.Equal(t, f32(6), y.Shape(), "GoMLX takes the shape from the hook's result")
	grad := graph.Gradient(graph.ReduceAllSum(y), x)[0]
	require.NoError(t, g.Compile(y, grad))
	assert.Equal(t, []string{"main"}, inFunction)
	p := g.Executable().(*lowering.Executable).Program()
	assert.Equal(t, []shapes.Shape{f32(6), f32(3)}, p.Outputs)
	assert.Contains(t, string(text(t, p)), "stablehlo.concatenate")
}

func TestIdentityHookFailuresNameTheOp(t *testing.T) {
	boom := errors.New("boom")
	for _, test := range []struct {
		name string
		hook func(*lowering.Function, *stablehlo.Value) (*stablehlo.Value, error)
		want string
	}{
		{"an error", func(*lowering.Function, *stablehlo.Value) (*stablehlo.Value, error) { return nil, boom }, "boom"},
		{"nothing", func(*lowering.Function, *stablehlo.Value) (*stablehlo.Value, error) { return nil, nil }, "neither"},
		{"a panic", func(*lowering.Function, *stablehlo.Value) (*stablehlo.Value, error) { panic(boom) }, "boom"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := lowering.New(lowering.Options{Identity: test.hook}).Builder("b").Main()
			_, err := f.Identity(must(t)(f.Parameter("x", f32(3), nil)))
			assert.ErrorContains(t, err, test.want)
			var op *lowering.OpError
			require.ErrorAs(t, err, &op)
			assert.Equal(t, "Identity", op.Op)
			assert.Equal(t, []shapes.Shape{f32(3)}, op.Operands)
		})
	}
}

func TestShapesConvertBothWays(t *testing.T) {
	for _, s := range []shapes.Shape{f32(), f32(0, 3), shapes.Make(dtypes.Bool, 1), shapes.Make(dtypes.Complex128, 2)} {
		x, err := lowering.StableHLOShape(s)
		require.NoError(t, err)
		assert.True(t, s.Equal(lowering.ShapeOf(x)), "%s", s)
	}
	for _, s := range []shapes.Shape{
		{},
		shapes.MakeTuple([]shapes.Shape{f32()}),
		shapes.MakeDynamic(dtypes.Float32, []int{-1}, []string{"batch"}),
		{DType: dtypes.Float32, Dimensions: []int{-7}},
		{DType: dtypes.F8E5M2},
		{DType: dtypes.DType(1000)},
	} {
		_, err := lowering.StableHLOShape(s)
		assert.Error(t, err)
	}
}

// TestCapabilitiesMatchTheMethods calls every method of compute's op interfaces without usable
// operands. An op that is not lowered returns ErrNotImplemented. A lowered op returns an error
// about the operands, unless it has no operands.
func TestCapabilitiesMatchTheMethods(t *testing.T) {
	claimed := lowering.New(lowering.Options{}).Capabilities()
	listed := map[string]bool{}
	for op, ok := range claimed.Operations {
		listed[strings.TrimPrefix(op.String(), "OpType")] = ok
	}
	seen := map[string]bool{}
	for _, set := range []reflect.Type{
		reflect.TypeFor[compute.StandardOps](), reflect.TypeFor[compute.CollectiveOps](),
		reflect.TypeFor[compute.FusedOps](), reflect.TypeFor[compute.DynamicOps](),
	} {
		for i := range set.NumMethod() {
			method := set.Method(i)
			f := lowering.New(lowering.Options{}).Builder("b").Main()
			in := make([]reflect.Value, 0, method.Type.NumIn())
			for j := range method.Type.NumIn() {
				in = append(in, reflect.Zero(method.Type.In(j)))
			}
			call := reflect.ValueOf(f).MethodByName(method.Name).Call
			if method.Type.IsVariadic() {
				call = reflect.ValueOf(f).MethodByName(method.Name).CallSlice
			}
			out := call(in)
			err, _ := out[len(out)-1].Interface().(error)
			assert.Equal(t, listed[method.Name], !errors.Is(err, compute.ErrNotImplemented), "%s: %v", method.Name, err)
			seen[method.Name] = true
		}
	}
	for name := range listed {
		switch name {
		case "Parameter", "Constant", "Call", "If", "While", "Sort": // methods of Function itself
		default:
			assert.True(t, seen[name], "%s is claimed but is no method", name)
		}
	}
	assert.False(t, claimed.DTypes[dtypes.F8E5M2])
	assert.True(t, claimed.DTypes[dtypes.BFloat16])
}
