package strategy_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// wholeKernel returns the kernel of a convolution without groups that is equivalent to a
// convolution with groups: it is zero where a group does not read a channel.
func wholeKernel(kernel *graph.Node, groups int) *graph.Node {
	g, in := kernel.Graph(), kernel.Shape().Dim(2)
	var parts []*graph.Node
	for i, part := range graph.Split(kernel, 3, groups) {
		pad := compute.PadAxis{Start: i * in, End: (groups - 1 - i) * in}
		parts = append(parts, graph.Pad(part, graph.ScalarZero(g, kernel.DType()), compute.PadAxis{}, compute.PadAxis{}, pad,
			compute.PadAxis{}))
	}
	return graph.Concatenate(parts, 3)
}

func TestTheGradientOfAConvolutionInGroupsIsTwoConvolutions(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct{ groups, in, out, stride, logical int }{{4, 8, 16, 1, 1}, {8, 8, 8, 2, 1}, {2, 8, 4, 2, 4},
		{8, 8, 16, 1, 2}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := strategytest.On(t, plugintest.System(t, 8), strategy.Options{LogicalDevices: c.logical})
			gradients := func(grouped bool) (all [2]*tensors.Tensor, text []byte) {
				f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
					x, kernel := in[0], in[1]
					var y *graph.Node
					if grouped {
						y = graph.Convolve(x, kernel).ChannelGroupCount(c.groups).PadSame().Strides(c.stride).Done()
					} else {
						y = graph.Convolve(x, wholeKernel(kernel, c.groups)).PadSame().Strides(c.stride).Done()
					}
					l := graph.ReduceAllSum(graph.Mul(y, graph.Sin(graph.ConvertDType(graph.IotaFull(rc.Graph(), y.Shape()),
						dtypes.Float32))))
					return graph.Gradient(l, x, kernel)
				}, strategy.FunctionOptions{})
				count := func(dims ...int) *tensors.Tensor {
					x := tensors.FromShape(shapes.Make(dtypes.Float32, dims...))
					tensors.MustMutableFlatData(x, func(flat []float32) {
						for i := range flat {
							flat[i] = float32(i*7%23)/23 - 0.5
						}
					})
					return x
				}
				x, kernel := count(2, 6, 6, c.in), count(3, 3, c.in/c.groups, c.out)
				compiled, err := f.Compiled(ctx, x.Shape(), kernel.Shape())
				require.NoError(t, err)
				results, err := f.Run(ctx, x, kernel)
				require.NoError(t, err)
				for i, result := range results {
					all[i], err = result.Local(ctx, 0)
					require.NoError(t, err)
				}
				return all, compiled.Module.Text
			}
			want, _ := gradients(false)
			got, text := gradients(true)
			for i := range want {
				assert.True(t, got[i].InDelta(want[i], 1e-4), "gradient %d", i)
			}
			assert.Equal(t, 2, bytes.Count(text, []byte(fmt.Sprintf("_group_count = %d", c.groups)))-1,
				"convolutions in groups, without the first")
		})
	}
}
