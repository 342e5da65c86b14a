package remat_test

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// For the backward pass, the policy keeps the named tensor of the block in addition to the input.
func ExampleBlock() {
	strat, done := strategytest.Example(1, 1)
	defer done()
	step := strategytest.OK(train.New(strat, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.1).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := remat.Block(remat.Names("hidden"), in[0], func(x *graph.Node) *graph.Node {
				h := remat.Name(layers.Dense(rc.Scope("hidden"), x, true, 32), "hidden")
				return graph.Tanh(graph.Mul(h, graph.Sigmoid(h))) // computed again
			})
			return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), h, true, 1), in[1])))
		}, train.Options{}))
	x, y := [][]float32{{-1}, {-0.5}, {0.5}, {1}}, [][]float32{{1}, {0.25}, {0.25}, {1}}
	var last float64
	for range 100 {
		loss, err := step.Run(context.Background(), x, y)
		if err != nil {
			panic(err)
		}
		if last, err = loss.Float64(context.Background()); err != nil {
			panic(err)
		}
	}
	fmt.Println(last < 0.01)
	// Output: true
}

func ExamplePolicy_And() {
	fmt.Println(remat.Products().And(remat.Names("attention")))
	// Output: Products().And(Names("attention"))
}
