package gomlxtest

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Refused tests that invalid programs return errors of the expected kind and that the backend is
// usable afterwards. The backend must have exactly 8 devices.
func Refused(t *testing.T, b compute.Backend) {
	grid := func(t *testing.T) *distributed.DeviceMesh { return mesh(t, []int{4, 2}, "row", "column") }
	// call calls an Exec that negates its argument. GoMLX does not validate the sharding of the
	// result.
	call := func(t *testing.T, b compute.Backend, in any, axes ...distributed.AxisSpec) error {
		m := grid(t)
		exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Neg(x) })
		require.NoError(t, err)
		finalized(t, exec)
		exec.AutoSharding(m).WithOutputShardingSpecs(&distributed.ShardingSpec{Mesh: m, Axes: axes})
		args := make([]any, m.NumDevices())
		for i := range args {
			args[i] = in
		}
		_, err = exec.Call(args...)
		return err
	}
	vector := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	// Cases without a kind are errors of GoMLX itself.
	const invalid = errkind.InvalidArgumentError
	for _, c := range []struct {
		name, want string
		kind       errkind.Kind
		try        func(t *testing.T, b compute.Backend) error
	}{
		{"an axis that the mesh does not have", `result 0.*dimension 0 is split over axis "diagonal"`, invalid,
			func(t *testing.T, b compute.Backend) error {
				return call(t, b, vector, distributed.AxisSpec{"diagonal"})
			}},
		{"an axis that splits two dimensions", `axis "row" splits it twice`, invalid,
			func(t *testing.T, b compute.Backend) error {
				return call(t, b, [][]float32{vector, vector, vector, vector}, distributed.AxisSpec{"row"},
					distributed.AxisSpec{"row"})
			}},
		{"a size that does not divide", `dimension 0 of size 6 does not split into 4 equal parts`, invalid,
			func(t *testing.T, b compute.Backend) error {
				return call(t, b, vector[:6], distributed.AxisSpec{"row"})
			}},
		{"a sharding of more dimensions than the tensor's", `the sharding is of 2 dimensions, the tensor has 1`, invalid,
			func(t *testing.T, b compute.Backend) error {
				return call(t, b, vector, distributed.AxisSpec{"row"}, distributed.AxisSpec{"column"})
			}},
		{"a split over a mesh of fewer devices", `mesh "small" has 2 devices, the computation runs on the 8 of mesh "mesh"`,
			invalid, func(t *testing.T, b compute.Backend) error {
				small := mesh(t, []int{2}, "x")
				small.SetName("small")
				g := graph.NewGraph(b, "meshes")
				require.NoError(t, g.SetAutoSharding(grid(t), small))
				return g.Compile(graph.Neg(graph.ShardedParameter(g, "x", shapes.Make(dtypes.Float32, 8), split(t, small, "x"))))
			}},
		{"a mesh with an order of its own", `an order of its own`, invalid, func(t *testing.T, b compute.Backend) error {
			m := mesh(t, []int{2}, "x")
			require.NoError(t, m.SetLogicalDeviceAssignment(1, 0))
			g := graph.NewGraph(b, "order")
			require.NoError(t, g.SetAutoSharding(m))
			return g.Compile(graph.Neg(graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 8))))
		}},
		{"a part of another shape", `input 1, parameter "arg0" of device 1, is .*2.*, want .*4`, invalid,
			func(t *testing.T, b compute.Backend) error {
				m := mesh(t, []int{2}, "x")
				exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Neg(x) })
				require.NoError(t, err)
				finalized(t, exec)
				_, err = exec.AutoSharding(m).WithInputShardingSpecs(split(t, m, "x")).Call(vector[:4], vector[:2])
				return err
			}},
		{"a part of as many bytes in another shape", `input 0, parameter "arg0" of device 0, is .*nt32.*, want .*loat32`,
			invalid, func(t *testing.T, b compute.Backend) error {
				m := mesh(t, []int{2}, "x")
				g := graph.NewGraph(b, "bytes")
				require.NoError(t, g.SetAutoSharding(m))
				x := graph.ShardedParameter(g, "arg0", shapes.Make(dtypes.Float32, 8), split(t, m, "x"))
				require.NoError(t, g.Compile(graph.Neg(x)))
				return caught(func() { g.Run([]int32{1, 2, 3, 4}, []int32{1, 2, 3, 4}) })
			}},
		{"fewer parts than devices", `number of devices`, 0, func(t *testing.T, b compute.Backend) error {
			m := mesh(t, []int{2}, "x")
			exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Neg(x) })
			require.NoError(t, err)
			finalized(t, exec)
			_, err = exec.AutoSharding(m).Call(vector)
			return err
		}},
		{"more devices than there are", `16.*8`, invalid, func(t *testing.T, b compute.Backend) error {
			exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Neg(x) })
			require.NoError(t, err)
			finalized(t, exec)
			m := mesh(t, []int{16}, "x")
			_, err = exec.AutoSharding(m).Call(repeated(16, vector)...)
			return err
		}},
		{"a tensor that does not divide", `not divisible`, 0, func(t *testing.T, b compute.Backend) error {
			_, err := dtensor.ShardTensor(split(t, mesh(t, []int{3}, "x"), "x"), tensors.MustFromAnyValue(vector))
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.try(t, b)
			require.Error(t, err)
			require.Regexp(t, c.want, err.Error())
			if c.kind != 0 {
				require.Equal(t, c.kind, errkind.KindOf(err))
			}
			out, err := graph.CallOnce(b, func(x *graph.Node) *graph.Node { return graph.Neg(x) }, float32(1))
			require.NoError(t, err)
			require.Equal(t, float32(-1), out.Value())
		})
	}
}

// repeated returns n copies of a value.
func repeated(n int, value any) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = value
	}
	return all
}

// caught returns the error with which a function panics.
func caught(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(error)
		}
	}()
	f()
	return nil
}
