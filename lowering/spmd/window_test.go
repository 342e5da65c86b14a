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

// TestPoolGradientsOfSplitTensors compares gradients of pools, with and without overlapping
// windows, of a tensor that is split along the windows with those of a replicated tensor.
func TestPoolGradientsOfSplitTensors(t *testing.T) {
	const n, channels = 8, 2
	type pool struct{ window, stride, low, high int }
	var pools []pool
	for window := 1; window <= 3; window++ {
		for stride := 1; stride <= 3; stride++ {
			for _, padding := range [][2]int{{0, 0}, {1, 0}, {1, 2}} {
				if padding[0] < window && padding[1] < window {
					pools = append(pools, pool{window, stride, padding[0], padding[1]})
				}
			}
		}
	}
	x := make([]float32, n*channels)
	for i := range x {
		x[i] = float32(i*5%len(x)) - 4
	}
	for _, p := range []int{2, 4} {
		build := func(logicalDevices int) *spmd.Module {
			return build(t, spmd.Options{LogicalDevices: logicalDevices, Target: lowering.TargetCPU}, spmd.Signature{
				Arguments: []spmd.Tensor{{}}, Results: make([]spmd.Tensor, 2*len(pools)),
			}, func(g *graph.Graph) []*graph.Node {
				x := logical.Split(param(g, "x", 1, n, channels), 1, logicalDevices, 1)
				var out []*graph.Node
				for _, k := range pools {
					for _, make := range []func(*graph.Node) *graph.PoolBuilder{graph.MaxPool, graph.MinPool} {
						y := make(x).Window(k.window).Strides(k.stride).PaddingPerDim([][2]int{{k.low, k.high}}).Done()
						out = append(out, graph.Gradient(graph.ReduceAllSum(graph.Square(y)), x)[0])
					}
				}
				return out
			})
		}
		want := run(t, build(1), x)
		for i, got := range run(t, build(p), x) {
			assert.Equal(t, want[i], got, fmt.Sprintf("%+v over %d devices", pools[i/2], p))
		}
	}
}
