//go:build cgo

package spmd_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// TestConvolutionsOfSplitImages compares convolutions of images with a split height, and their
// gradients, with the results for replicated images.
func TestConvolutionsOfSplitImages(t *testing.T) {
	const rows, n, channels = 2, 8, 4
	type convolution struct {
		kernel, stride, dilation, low, high int
	}
	var all []convolution
	for _, kernel := range []int{3} {
		for _, stride := range []int{1, 2} {
			for _, dilation := range []int{1, 2}[:3-stride] {
				all = append(all, convolution{kernel, stride, dilation, 0, 0}, convolution{kernel, stride, dilation,
					kernel / 2 * dilation, kernel / 2 * dilation})
			}
		}
	}
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i*5%17)/8 - 1
		}
		return x
	}
	for _, c := range all {
		if (c.kernel-1)*c.dilation+1 > n+c.low+c.high {
			continue
		}
		for _, split := range [][]int{{1, 2, 2, 1}, {2, 2, 1, 1}, {1, 2, 1, 2}, {1, 4, 1, 1}} {
			p := 1
			for _, d := range split {
				p *= d
			}
			build := func(logicalDevices int) *spmd.Module {
				return build(t, spmd.Options{LogicalDevices: logicalDevices, Target: lowering.TargetCPU}, spmd.Signature{
					Arguments: []spmd.Tensor{{}, {}}, Results: make([]spmd.Tensor, 3),
				}, func(g *graph.Graph) []*graph.Node {
					x, k := param(g, "x", rows, n, n, channels), param(g, "k", c.kernel, c.kernel, channels, channels)
					if logicalDevices > 1 {
						x = logical.Split(x, split...)
					}
					y := graph.Convolve(x, k).Strides(c.stride).Dilations(c.dilation).PaddingPerDim([][2]int{{c.low, c.high},
						{c.low, c.high}}).Done()
					gradients := graph.Gradient(graph.ReduceAllSum(graph.Square(y)), x, k)
					return []*graph.Node{graph.ReduceAllSum(graph.Square(y)), gradients[0], gradients[1]}
				})
			}
			x, k := fill(rows*n*n*channels), fill(c.kernel*c.kernel*channels*channels)
			want := run(t, build(1), x, k)
			for i, got := range run(t, build(p), x, k) {
				assert.InDeltaSlice(t, want[i], got, 1e-2, fmt.Sprintf("%+v split %v, result %d", c, split, i))
			}
		}
	}
}
