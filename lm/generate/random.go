package generate

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// gumbelNoise returns noise of the standard Gumbel distribution, Float32 [rows, n]. To sample a
// token, add the noise to the log-probabilities and take the index of the largest sum. seed is
// Uint32 [rows, 2], position is int32 [rows]. The noise depends only on a row's seed and position,
// and not on other rows or replicas.
func gumbelNoise(seed, position *graph.Node, n int) *graph.Node {
	g := seed.Graph()
	shape := shapes.Make(dtypes.Uint32, position.Shape().Dim(0), n)
	broadcast := func(x *graph.Node) *graph.Node { return graph.BroadcastToShape(graph.InsertAxes(x, -1), shape) }
	bits, _ := threefryBlock(broadcast(sliceColumn(seed, 0)), broadcast(sliceColumn(seed, 1)),
		broadcast(graph.ConvertDType(position, dtypes.Uint32)), graph.Iota(g, shape, 1))
	// 23 random bits, at the centers of their intervals, so that u is neither 0 nor 1.
	u := graph.ConvertDType(graph.BitwiseShiftRightLogicalScalar(bits, uint32(9)), dtypes.Float32)
	u = graph.MulScalar(graph.AddScalar(u, 0.5), 1.0/(1<<23))
	return graph.Neg(graph.Log(graph.Neg(graph.Log(u))))
}

// threefryBlock is the block function Threefry-2x32 with 20 rounds (Salmon et al., "Parallel Random
// Numbers: As Easy as 1, 2, 3") for Uint32 tensors of the same shape.
func threefryBlock(key0, key1, x0, x1 *graph.Node) (_, _ *graph.Node) {
	number := func(n uint32) *graph.Node { return graph.BroadcastToShape(graph.Const(x0.Graph(), n), x0.Shape()) }
	keys := [3]*graph.Node{key0, key1, graph.BitwiseXor(graph.BitwiseXor(key0, key1), number(0x1BD11BDA))}
	rotations := [2][4]uint32{{13, 15, 26, 6}, {17, 29, 16, 24}}
	x0, x1 = graph.Add(x0, keys[0]), graph.Add(x1, keys[1])
	for i := range 5 {
		for _, r := range rotations[i%2] {
			x0 = graph.Add(x0, x1)
			x1 = graph.BitwiseOr(graph.BitwiseShiftLeft(x1, number(r)), graph.BitwiseShiftRightLogical(x1, number(32-r)))
			x1 = graph.BitwiseXor(x1, x0)
		}
		x0 = graph.Add(x0, keys[(i+1)%3])
		x1 = graph.Add(graph.Add(x1, keys[(i+2)%3]), number(uint32(i+1)))
	}
	return x0, x1
}
