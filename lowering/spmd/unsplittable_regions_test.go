//go:build cgo

package spmd_test

import (
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/splitforms"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// rowsNetwork is a network on x [1, rows, channels] with the kernels a and b. split splits the rows
// over the devices.
type rowsNetwork func(devices int, split func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node

// rowsNetworks have a layer with a number of rows that the devices do not divide, in every kind of region.
var rowsNetworks = map[string]rowsNetwork{
	"one layer": func(_ int, split func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node {
		return graph.Mul(convolve(split(x), a, 2), graph.ReduceAllSum(b))
	},
	"two layers": func(_ int, split func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node {
		return twoLayers([]*graph.Node{split(x), a, b})[0]
	},
	"pools": func(_ int, split func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node {
		x = graph.MaxPool(convolve(split(x), a, 2)).Window(3).Strides(2).PadSame().Done()
		return graph.MaxPool(convolve(x, b, 1)).Window(2).Strides(1).PadSame().Done()
	},
	"rematerialized": func(_ int, split func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node {
		return remat.BlockMany(remat.Nothing(), []*graph.Node{split(x), a, b}, twoLayers)[0]
	},
	"products kept": func(_ int, split func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node {
		return remat.BlockMany(remat.Products(), []*graph.Node{split(x), a, b}, twoLayers)[0]
	},
	"loop": func(_ int, split func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node {
		arguments := loop.Arguments{Carried: []*graph.Node{convolve(split(x), a, 2)}, Shared: []*graph.Node{b}}
		return loop.Run(nil, 3, arguments, func(layer *loop.Layer) loop.Results {
			return loop.Results{Carried: []*graph.Node{convolve(layer.Carried[0], layer.Shared[0], 1)}}
		}, loop.Options{Keep: remat.Nothing()}).Carried[0]
	},
	"on one device": func(devices int, split func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node {
		return logical.OnDeviceMany(devices-1, []*graph.Node{split(x), a, b}, twoLayers)[0]
	},
	"assigned": func(devices int, _ func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node {
		return logical.Assign(convolve(logical.Assign(convolve(x, a, 2), devices-1), b, 2), 0)
	},
	"manual": func(_ int, split func(x *graph.Node) *graph.Node, x, a, b *graph.Node) *graph.Node {
		in := []manual.Arg{manual.In(split(x), nil, nil, nil), manual.In(a, nil, nil, nil), manual.In(b, nil, nil, nil)}
		return manual.Region([]string{spmd.LogicalAxis}, in, []sharding.Spec{sharding.P(nil, nil, nil)}, twoLayers)[0]
	},
}

func convolve(x, kernel *graph.Node, stride int) *graph.Node {
	return graph.Convolve(x, kernel).Strides(stride).PadSame().Done()
}

func twoLayers(in []*graph.Node) []*graph.Node {
	return []*graph.Node{convolve(convolve(in[0], in[1], 2), in[2], 2)}
}

func TestConvolutionGradientsOfSplitRowsEqualThoseOfOneDevice(t *testing.T) {
	const channels = 2
	meshes := []struct{ replicas, devices, rows int }{{1, 2, 6}, {1, 4, 28}, {1, 8, 8}, {1, 8, 40}, {2, 4, 12}}
	for name, network := range rowsNetworks {
		t.Run(name, func(t *testing.T) {
			for _, c := range meshes {
				step := func(replicas, devices int) [][]float32 {
					m := build(t, spmd.Options{Replicas: replicas, LogicalDevices: devices, Target: lowering.TargetCPU},
						spmd.Signature{
							Arguments: make([]spmd.Tensor, 3), Results: make([]spmd.Tensor, 4),
						}, func(g *graph.Graph) []*graph.Node {
							x := param(g, "x", 1, c.rows, channels)
							a, b := param(g, "a", 3, channels, channels), param(g, "b", 3, channels, channels)
							split := func(x *graph.Node) *graph.Node { return logical.Split(x, 1, devices, 1) }
							y := network(devices, split, x, a, b)
							return append([]*graph.Node{y}, graph.Gradient(graph.ReduceAllSum(graph.Square(y)), x, a, b)...)
						})
					form := splitforms.Form{Seed: uint64(c.rows)}
					kernel := 3 * channels * channels
					return run(t, m, form.Data(0, c.rows*channels), form.Data(1, kernel), form.Data(2, kernel))
				}
				want := step(1, 1)
				for i, got := range step(c.replicas, c.devices) {
					assert.LessOrEqual(t, splitforms.Difference(got, want[i]), 1e-5, "%+v, result %d", c, i)
				}
			}
		})
	}
}

// TestOneByOneConvolutionsStaySplit compiles convolutions that do not combine rows.
func TestOneByOneConvolutionsStaySplit(t *testing.T) {
	const rows, channels, parts = 28, 3, 4
	step := func(parts int) *spmd.Module {
		return build(t, spmd.Options{LogicalDevices: parts, Target: lowering.TargetCPU}, spmd.Signature{
			Arguments: make([]spmd.Tensor, 2), Results: make([]spmd.Tensor, 2),
		}, func(g *graph.Graph) []*graph.Node {
			x, k := param(g, "x", 2, rows, channels), param(g, "k", 1, channels, channels)
			if parts > 1 {
				x = logical.Split(x, 1, parts, 1)
			}
			y := graph.Convolve(x, k).Done()
			return graph.Gradient(graph.ReduceAllSum(graph.Square(y)), x, k)
		})
	}
	split := step(parts)
	assert.Equal(t, 1, strings.Count(string(split.Text), "sdy.sharding_constraint"), "only the split of x")
	form := splitforms.Form{Seed: 1}
	x, k := form.Data(0, 2*rows*channels), form.Data(1, channels*channels)
	want := run(t, step(1), x, k)
	for i, got := range run(t, split, x, k) {
		require.LessOrEqual(t, splitforms.Difference(got, want[i]), 1e-5, "result %d", i)
	}
}
