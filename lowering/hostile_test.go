package lowering_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering"
)

// TestWrongArgumentsAreErrors calls ops with invalid operands. Each error must contain the op and
// the shapes, and no op may panic.
func TestWrongArgumentsAreErrors(t *testing.T) {
	type fn = func(f compute.Function, x, i compute.Value) (compute.Value, error)
	for _, test := range []struct {
		name string
		call fn
		want string
	}{
		{"dtypes differ", func(f compute.Function, x, i compute.Value) (compute.Value, error) { return f.Add(x, i) },
			"lowering: Add((Float32)[2, 3], (Int32)[4]): operands have dtypes Float32 and Int32"},
		{"ranks differ", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Mul(x, must(t)(f.Constant([]float32{1, 2, 3}, 3)))
		}, "ranks 2 and 1"},
		{"dimensions differ", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Max(x, must(t)(f.Constant([]float32{1, 2, 3, 4}, 2, 2)))
		}, "axis 1 has dimensions 3 and 2"},
		{"nil operand", func(f compute.Function, x, _ compute.Value) (compute.Value, error) { return f.Add(x, nil) },
			"operand 1: nil operand"},
		{"foreign operand", func(f compute.Function, _, _ compute.Value) (compute.Value, error) { return f.Neg("x") },
			"a string of another backend"},
		{"operand of another computation", func(f compute.Function, _, _ compute.Value) (compute.Value, error) {
			other := lowering.New(lowering.Options{}).Builder("other").Main()
			return f.Neg(must(t)(other.Parameter("x", f32(2), nil)))
		}, `another computation, "other"`},
		{"operand of a closure", func(f compute.Function, _, _ compute.Value) (compute.Value, error) {
			c, err := f.Closure()
			require.NoError(t, err)
			return f.Neg(must(t)(c.Constant([]float32{1})))
		}, "does not enclose"},
		{"logical op on numbers", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.LogicalAnd(x,
				x)
		},
			"logical ops want Bool"},
		{"logical reduction of numbers", func(f compute.Function, x, _ compute.Value) (compute.Value,
			error) {
			return f.ReduceLogicalOr(x)
		},
			"logical ops want Bool"},
		{"negative dimension", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Reshape(x, 3,
				-2)
		},
			"negative dimension"},
		{"other size", func(f compute.Function, x, _ compute.Value) (compute.Value, error) { return f.Reshape(x, 7) },
			"Reshape"},
		{"axis out of range", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.ReduceSum(x,
				2)
		},
			"axis 2 is outside rank 2"},
		{"axis given twice", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.ReduceSum(x, 1,
				-1)
		}, "ReduceSum"},
		{"iota axis", func(f compute.Function, _, _ compute.Value) (compute.Value, error) { return f.Iota(f32(2), 5) },
			"Iota"},
		{"invalid shape", func(f compute.Function, _, _ compute.Value) (compute.Value, error) {
			return f.Iota(shapes.Shape{},
				0)
		},
			"invalid shape"},
		{"permutation", func(f compute.Function, x, _ compute.Value) (compute.Value, error) { return f.Transpose(x, 0, 0) },
			"Transpose"},
		{"slice past the end", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Slice(x, []int{0, 0}, []int{9, 9}, nil)
		}, "Slice"},
		{"slice of other rank", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Slice(x, []int{0}, []int{1}, nil)
		}, "Slice"},
		{"nothing to concatenate", func(f compute.Function, _, _ compute.Value) (compute.Value,
			error) {
			return f.Concatenate(0)
		}, "Concatenate"},
		{"too many paddings", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Pad(x, must(t)(f.Constant([]float32{0})), make([]compute.PadAxis, 3)...)
		}, "3 axes for rank 2"},
		{"no type for the dtype", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.ConvertDType(x, dtypes.F8E4M3)
		}, "no StableHLO type"},
		{"bitcast to no type", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Bitcast(x, dtypes.InvalidDType)
		}, "no StableHLO type"},
		{"bitcast that cannot join", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Bitcast(must(t)(f.Bitcast(x, dtypes.Int4)), dtypes.Uint8)
		}, "wants a last axis of dimension 2, got [2 3 8]"},
		{"bitcast that cannot join small integers", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Bitcast(must(t)(f.Bitcast(x, dtypes.Int2)), dtypes.Int4)
		}, "wants a last axis of dimension 2, got [2 3 16]"},
		{"index dtype", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.ArgMinMax(x, 0, dtypes.Float32, true)
		}, "must be an integer"},
		{"window of other rank", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.ReduceWindow(x, compute.ReduceOpSum, []int{2}, nil, nil, nil, nil)
		}, "window has 1 values for rank 2"},
		{"unknown reduction", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.ReduceWindow(x, compute.ReduceOpUndefined, nil, nil, nil, nil, nil)
		}, "not one of Sum"},
		{"convolution of a matrix", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.ConvGeneral(must(t)(f.ReduceSum(x, 0)), x, compute.ConvolveAxesConfig{}, nil, nil, nil, nil, 1, 1)
		}, "batch and a channel axis"},
		{"condition that is no Bool", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.Where(x,
				x, x)
		},
			"must be Bool"},
		{"contracting axis", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.DotGeneral(x, []int{9}, nil, x, []int{9}, nil, compute.DotGeneralConfig{})
		}, "DotGeneral"},
		{"batch norm axis", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			return f.BatchNormForInference(x, x, x, x, x, 1e-3, 7)
		}, "axis 7"},
		{"random state", func(f compute.Function, x, _ compute.Value) (compute.Value, error) {
			_, v, err := f.RNGBitGenerator(x, f32(2))
			return v, err
		}, "Philox state"},
		{"gather arguments", func(f compute.Function, x, i compute.Value) (compute.Value, error) {
			return f.Gather(x, i, 5, nil, []int{8}, []int{9}, []int{-1}, false)
		}, "Gather"},
		{"constant without values", func(f compute.Function, _, _ compute.Value) (compute.Value,
			error) {
			return f.Constant(nil)
		}, "nil"},
		{"constant of text", func(f compute.Function, _, _ compute.Value) (compute.Value,
			error) {
			return f.Constant([]string{"x"})
		},
			"want a flat slice"},
		{"constant of other size", func(f compute.Function, _, _ compute.Value) (compute.Value,
			error) {
			return f.Constant([]int8{1}, 2)
		},
			"1 values for dimensions [2]"},
		{"constant of negative size", func(f compute.Function, _, _ compute.Value) (compute.Value, error) {
			return f.Constant([]int8{1}, -1, -1)
		}, "negative"},
		{"parameter name taken", func(f compute.Function, _, _ compute.Value) (compute.Value, error) {
			return f.Parameter("x", f32(), nil)
		},
			"already exists"},
		{"parameter of a dynamic shape", func(f compute.Function, _, _ compute.Value) (compute.Value, error) {
			return f.Parameter("d", shapes.MakeDynamic(dtypes.Float32, []int{-1}, []string{"batch"}), nil)
		}, "dynamic"},
		{"unknown mesh", func(f compute.Function, _, _ compute.Value) (compute.Value, error) {
			return f.Parameter("m", f32(2), &compute.ShardingSpec{Mesh: "nowhere"})
		}, `mesh "nowhere"`},
		{"left out", func(f compute.Function, x, _ compute.Value) (compute.Value, error) { return f.FusedSoftmax(x, 0) },
			"not implemented"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := lowering.New(lowering.Options{}).Builder("b").Main()
			x := must(t)(f.Parameter("x", f32(2, 3), nil))
			i := must(t)(f.Parameter("i", shapes.Make(dtypes.Int32, 4), nil))
			v, err := test.call(f, x, i)
			require.ErrorContains(t, err, test.want)
			assert.Nil(t, v)
			var op *lowering.OpError
			assert.ErrorAs(t, err, &op)
		})
	}
}

func TestControlFlowRefusesForeignFunctions(t *testing.T) {
	do := must(t)
	f := lowering.New(lowering.Options{}).Builder("b").Main()
	p := do(f.Parameter("p", shapes.Make(dtypes.Bool), nil))
	good := closure(t, f,
		func(c compute.Function) []compute.Value { return []compute.Value{do(c.Constant([]bool{true}))} })
	unfinished, err := f.Closure()
	require.NoError(t, err)
	other := lowering.New(lowering.Options{}).Builder("other").Main()
	foreign := closure(t, other,
		func(c compute.Function) []compute.Value { return []compute.Value{do(c.Constant([]bool{true}))} })

	_, err = f.If(p, good, unfinished)
	assert.ErrorContains(t, err, "false branch has no Return")
	_, err = f.If(p, foreign, good)
	assert.ErrorContains(t, err, "true branch is not a closure of this function")
	_, err = f.While(nil, good, p)
	assert.ErrorContains(t, err, "condition")
	_, err = f.While(good, nil, p)
	assert.ErrorContains(t, err, "body")
	_, err = f.Sort(good, 3, true, p)
	assert.ErrorContains(t, err, "axis 3")
	_, err = f.Sort(good, 0, true)
	assert.ErrorContains(t, err, "at least one")
	_, err = f.Call(good, p)
	assert.ErrorContains(t, err, "closure")
	_, err = f.Call(other, p)
	assert.ErrorContains(t, err, "another computation")
	_, err = f.AllReduce([]compute.Value{p}, compute.ReduceOpUndefined, nil)
	assert.Error(t, err)
}

func TestFinishedThingsRefuseWork(t *testing.T) {
	do := must(t)
	backend := lowering.New(lowering.Options{})
	b := backend.Builder("b")
	_, err := b.Compile()
	assert.ErrorContains(t, err, "Return was not called")
	x := do(b.Main().Parameter("x", f32(2), nil))
	assert.ErrorContains(t, b.Main().Return(nil, nil), "at least one output")
	assert.ErrorContains(t, b.Main().Return([]compute.Value{x}, make([]*compute.ShardingSpec, 2)),
		"2 shardings for 1 outputs")
	require.NoError(t, b.Main().Return([]compute.Value{x}, nil))
	unfinished, err := b.NewFunction("unfinished")
	require.NoError(t, err)
	_, err = b.Compile()
	assert.ErrorContains(t, err, `Return was not called on function "unfinished"`)
	require.NoError(t, unfinished.Return([]compute.Value{do(unfinished.Constant([]int8{1}))}, nil))
	_, err = b.Main().Neg(x)
	assert.ErrorContains(t, err, "Return was already called")
	assert.ErrorContains(t, b.Main().Return([]compute.Value{x}, nil), "already called")

	exe, err := b.Compile()
	require.NoError(t, err)
	_, err = b.Compile()
	assert.ErrorIs(t, err, lowering.ErrCompiled)
	_, err = b.NewFunction("late")
	assert.ErrorIs(t, err, lowering.ErrCompiled)
	assert.ErrorIs(t, b.DistributedSPMD(2), lowering.ErrCompiled)
	shape, err := b.OpShape(x)
	require.NoError(t, err, "shapes stay known")
	assert.Equal(t, f32(2), shape)

	_, err = exe.Execute(nil, nil, 0)
	assert.ErrorIs(t, err, lowering.ErrNotExecutable)
	names, in := exe.Inputs()
	assert.Equal(t, []string{"x"}, names)
	assert.Equal(t, in, exe.Outputs())
	exe.Finalize()

	_, err = backend.BufferFromFlatData(0, []float32{1}, f32(1))
	assert.ErrorIs(t, err, lowering.ErrNoData)
	_, _, err = backend.NewSharedBuffer(0, f32(1))
	assert.ErrorIs(t, err, lowering.ErrNoData)
	assert.False(t, backend.HasSharedBuffers())

	other := backend.Builder("other")
	backend.Finalize()
	assert.True(t, backend.IsFinalized())
	_, err = other.Main().Parameter("x", f32(2), nil)
	assert.ErrorIs(t, err, lowering.ErrFinalized)
}

func TestDeviceAssignmentIsChecked(t *testing.T) {
	b := lowering.New(lowering.Options{NumDevices: 4}).Builder("b")
	assert.ErrorContains(t, b.DistributedSPMD(0), "at least 1")
	require.NoError(t, b.DistributedSPMD(2))
	assert.ErrorContains(t, b.DeviceAssignment(0), "wants 2 devices, got 1")
	assert.ErrorContains(t, b.DeviceAssignment(0, 4), "not in [0, 4)")
	assert.ErrorContains(t, b.DeviceAssignment(0, -1), "not in [0, 4)")
	assert.ErrorContains(t, b.DeviceAssignment(1, 1), "named twice")
	assert.NoError(t, b.DeviceAssignment(3, 1))
	assert.ErrorContains(t, b.DistributedAutoSharding(), "at least one mesh")
	assert.Error(t, b.DistributedAutoSharding(compute.Mesh{Name: "m", AxesNames: []string{"x"}, AxesSizes: []int{2, 3}}))
}

func TestOptionsThatAreNoneAreRefused(t *testing.T) {
	for _, opts := range []lowering.Options{{Target: 99}, {Target: -1}, {Precision: 99}, {Precision: -1}, {Random: 99},
		{Random: -1}} {
		_, err := lowering.New(opts).Builder("b").Compile()
		require.ErrorContains(t, err, "is unknown", "%+v", opts)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}
