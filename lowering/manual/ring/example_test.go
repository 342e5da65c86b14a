//go:build cgo

package ring_test

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/manual/ring"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// A sequence of four positions is split into two shards. All scores are equal, so the result at
// each position is the mean of the values up to this position.
func ExampleAttention() {
	s, done := strategytest.Example(1, 2)
	defer done()
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		v := in[0] // [batch, length, heads, dim]
		same := graph.ZerosLike(v)
		return []*graph.Node{ring.Attention("logical", same, same, v, ring.Options{Causal: true})}
	}, strategy.FunctionOptions{})
	out := strategytest.OK(f.Run(context.Background(), [][][][]float32{{{{2}}, {{4}}, {{6}}, {{8}}}}))
	fmt.Println(strategytest.OK(out[0].Local(context.Background(), 0)).Value())
	// Output: [[[[2]] [[3]] [[4]] [[5]]]]
}
