package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// transforms are Fourier transforms of x [8, 16], whose last dimension is split, and their
// gradients.
func transforms(x *graph.Node) []*graph.Node {
	c := graph.ConvertDType(x, dtypes.Complex64)
	both := graph.FFT(c, 8, 16)
	back := graph.InverseRealFFT(graph.Mul(graph.RealFFT(x), graph.RealFFT(graph.Neg(x))))
	return []*graph.Node{
		graph.Abs(graph.FFT(c)), graph.Real(graph.InverseFFT(both, 8, 16)), graph.Abs(both), back,
		graph.Abs(graph.FFT(graph.Transpose(c, 0, 1))), graph.Gradient(graph.ReduceAllSum(graph.Square(back)), x)[0],
	}
}

func TestFourierTransformsOfASplitDimensionEqualThoseOfOneDevice(t *testing.T) {
	ctx := context.Background()
	flat := make([]float32, 8*16)
	for i := range flat {
		flat[i] = float32(i*5%17) - 8
	}
	x := tensors.FromFlatDataAndDimensions(flat, 8, 16)
	results := func(replicas, devices int) (all []*tensors.Tensor) {
		s := strategytest.New(t, replicas, devices)
		f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return transforms(logical.Split(in[0], 1, devices))
		}, strategy.FunctionOptions{})
		out, err := f.Run(ctx, x)
		require.NoError(t, err)
		for _, r := range out {
			v, err := r.Local(ctx, 0)
			require.NoError(t, err)
			all = append(all, v)
		}
		return all
	}
	want := results(1, 1)
	for _, mesh := range [][2]int{{1, 2}, {1, 4}, {1, 8}, {2, 4}} {
		for i, got := range results(mesh[0], mesh[1]) {
			assert.True(t, got.InDelta(want[i], 1e-2), "mesh %v, transform %d: %v, want %v", mesh, i, got, want[i])
		}
	}
}

// TestAOTOperationsThatWalkOverASplitDimensionCompile compiles Fourier transforms and convolutions
// with their gradients for a TPU.
func TestAOTOperationsThatWalkOverASplitDimensionCompile(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	for _, devices := range []int{1, 4} {
		s := strategytest.Ahead(t, "v5e:2x2", strategy.Options{Replicas: 1, LogicalDevices: devices})
		f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			x := logical.Split(in[0], 1, devices)
			rows := logical.Split(in[1], 1, devices, 1, 1)
			y := graph.Convolve(rows, in[2]).Strides(2).PadSame().Done()
			y = graph.Convolve(y, in[2]).Strides(2).PadSame().Done()
			return append(transforms(x), graph.Gradient(graph.ReduceAllSum(graph.Square(y)), in[1], in[2])...)
		}, strategy.FunctionOptions{})
		matrix, image, kernel := shapes.Make(dtypes.Float32, 8, 16), shapes.Make(dtypes.Float32, 2, 28, 8, 4),
			shapes.Make(dtypes.Float32, 3, 3, 4, 4)
		_, err := f.Compiled(context.Background(), matrix, image, kernel)
		require.NoError(t, err, fmt.Sprint(devices))
	}
}
