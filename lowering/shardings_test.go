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

var grid = compute.Mesh{Name: "mesh", AxesNames: []string{"x", "y"}, AxesSizes: []int{4, 2}}

func over(axes ...[]string) *compute.ShardingSpec {
	return &compute.ShardingSpec{Mesh: "mesh", Axes: axes}
}

// sharded builds a program that returns its argument twice, with the given shardings.
func sharded(t *testing.T, meshes []compute.Mesh, in *compute.ShardingSpec,
	out []*compute.ShardingSpec) (*lowering.Program, error) {
	t.Helper()
	b := lowering.New(lowering.Options{NumDevices: 8}).Builder("sharded")
	require.NoError(t, b.DistributedAutoSharding(meshes...))
	x := must(t)(b.Main().Parameter("x", f32(8, 6), in))
	require.NoError(t, b.Main().Return([]compute.Value{x, must(t)(b.Main().ReduceSum(x))}, out))
	exe, err := b.Compile()
	if err != nil {
		return nil, err
	}
	return exe.(*lowering.Executable).Program(), nil
}

func TestATensorWithoutAShardingIsWhole(t *testing.T) {
	p, err := sharded(t, []compute.Mesh{grid}, nil, []*compute.ShardingSpec{over([]string{"x", "y"}), nil})
	require.NoError(t, err)
	got := string(text(t, p))
	assert.Contains(t, got, `%x: tensor<8x6xf32> { sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>`)
	assert.Contains(t, got, `tensor<8x6xf32> { sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}, {}]>`)
	assert.Contains(t, got, `tensor<f32> { sdy.sharding = #sdy.sharding<@mesh, []>`)
	assert.Equal(t, []shapes.Shape{f32(8, 6)}, p.Shards)
}

func TestAResultMayBeTheNextValueOfASplitParameter(t *testing.T) {
	p, err := sharded(t, []compute.Mesh{grid}, over([]string{"x"}, []string{"y"}), nil)
	require.NoError(t, err)
	got := string(text(t, p))
	assert.Contains(t, got, `-> (tensor<8x6xf32>, tensor<f32> { sdy.sharding = #sdy.sharding<@mesh, []>`,
		"the partitioner has the first")
	assert.Equal(t, []shapes.Shape{f32(2, 3)}, p.Shards)
}

func TestShardingsOfDevicesOfTheirOwnAreNotWritten(t *testing.T) {
	b := lowering.New(lowering.Options{NumDevices: 8}).Builder("spmd")
	require.NoError(t, b.DistributedSPMD(4))
	x := must(t)(b.Main().Parameter("x", f32(8, 6), over([]string{"x"})))
	require.NoError(t, b.Main().Return([]compute.Value{x}, []*compute.ShardingSpec{over()}))
	exe, err := b.Compile()
	require.NoError(t, err)
	p := exe.(*lowering.Executable).Program()
	assert.NotContains(t, string(text(t, p)), "sdy")
	assert.Equal(t, []shapes.Shape{f32(8, 6)}, p.Shards)
}

func TestWrongShardingsAreErrorsOfCompile(t *testing.T) {
	reversed := grid
	reversed.LogicalDeviceAssignment = []int{7, 6, 5, 4, 3, 2, 1, 0}
	small := compute.Mesh{Name: "small", AxesNames: []string{"x"}, AxesSizes: []int{4}}
	for _, c := range []struct {
		want    string
		meshes  []compute.Mesh
		in, out *compute.ShardingSpec
	}{
		{`parameter "x"`, nil, over([]string{"z"}), nil},
		{`axis "z", which mesh "mesh" does not have; its axes are ["x" "y"]`, nil, nil, over(nil, []string{"z"})},
		{`axis "x" splits it twice`, nil, nil, over([]string{"x"}, []string{"x"})},
		{`result 0: (Float32)[8, 6]: dimension 1 of size 6 does not split into 4 equal parts`, nil, nil,
			over(nil, []string{"x"})},
		{"the sharding is of 3 dimensions, the tensor has 2", nil, nil, over(nil, nil, nil)},
		{`mesh "elsewhere" is not among those given`, nil, nil, &compute.ShardingSpec{Mesh: "elsewhere"}},
		{"an order of its own", []compute.Mesh{reversed}, nil, nil},
		{`mesh "small" has 4 devices, the computation runs on the 8 of mesh "mesh"`, []compute.Mesh{small, grid},
			&compute.ShardingSpec{Mesh: "small", Axes: [][]string{{"x"}}}, nil},
	} {
		if c.meshes == nil {
			c.meshes = []compute.Mesh{grid}
		}
		_, err := sharded(t, c.meshes, c.in, []*compute.ShardingSpec{c.out, nil})
		require.ErrorContains(t, err, c.want)
		assert.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
	}
}

func TestAMeshOfNoDevicesIsRefused(t *testing.T) {
	b := lowering.New(lowering.Options{}).Builder("none")
	assert.ErrorContains(t, b.DistributedAutoSharding(compute.Mesh{Name: "mesh", AxesNames: []string{"x", "y"},
		AxesSizes: []int{2, 0}}), "sizes [2 0]")
}

func TestTheNextValueOfAVariableStaysWholeWhereItDoesNotDivide(t *testing.T) {
	next := func(name string, spec *compute.ShardingSpec) (string, error) {
		b := lowering.New(lowering.Options{NumDevices: 8}).Builder("next")
		require.NoError(t, b.DistributedAutoSharding(grid))
		x := must(t)(b.Main().Parameter(name, shapes.Make(dtypes.Uint64, 3), nil))
		require.NoError(t, b.Main().Return([]compute.Value{x}, []*compute.ShardingSpec{spec}))
		exe, err := b.Compile()
		if err != nil {
			return "", err
		}
		return string(text(t, exe.(*lowering.Executable).Program())), nil
	}
	got, err := next("/rngState", over([]string{"y"}))
	require.NoError(t, err)
	assert.Contains(t, got, `-> (tensor<3xui64> { sdy.sharding = #sdy.sharding<@mesh, [{}]>`)
	_, err = next("arg0", over([]string{"y"}))
	assert.ErrorContains(t, err, "dimension 0 of size 3 does not split into 2 equal parts",
		"whoever reads it joins equal parts")
	_, err = next("/rngState", over([]string{"z"}))
	assert.ErrorContains(t, err, `axis "z", which mesh "mesh" does not have`)
}

func TestResultsOfNamedFunctionsHaveShardings(t *testing.T) {
	inner := func(name string, spec *compute.ShardingSpec) (*lowering.Program, error) {
		b := lowering.New(lowering.Options{NumDevices: 8}).Builder("inner")
		require.NoError(t, b.DistributedAutoSharding(grid))
		f, err := b.NewFunction(name)
		require.NoError(t, err)
		x := must(t)(f.Parameter("x", f32(8), nil))
		require.NoError(t, f.Return([]compute.Value{x, x}, []*compute.ShardingSpec{spec, nil}))
		y := must(t)(b.Main().Parameter("y", f32(8), nil))
		out, err := b.Main().Call(f, y)
		require.NoError(t, err)
		require.NoError(t, b.Main().Return(out, nil))
		exe, err := b.Compile()
		if err != nil {
			return nil, err
		}
		return exe.(*lowering.Executable).Program(), nil
	}
	p, err := inner("f", over([]string{"x"}))
	require.NoError(t, err)
	assert.Contains(t, string(text(t, p)),
		`-> (tensor<8xf32> { sdy.sharding = #sdy.sharding<@mesh, [{"x"}]> }, tensor<8xf32>)`)
	_, err = inner("f", over([]string{"z"}))
	assert.ErrorContains(t, err, `result 0 of function "f": (Float32)[8]: dimension 0 is split over axis "z"`)
}

func TestResultsOfClosuresHaveNoShardings(t *testing.T) {
	b := lowering.New(lowering.Options{NumDevices: 8}).Builder("inner")
	require.NoError(t, b.DistributedAutoSharding(grid))
	f, err := b.Main().Closure()
	require.NoError(t, err)
	x := must(t)(f.Parameter("x", f32(8), nil))
	assert.ErrorContains(t, f.Return([]compute.Value{x}, []*compute.ShardingSpec{over()}),
		"give them to those of the function around it")
}
