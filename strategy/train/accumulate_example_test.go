package train_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The 4 rows of a replica are split into 2 microbatches. The first layer is frozen, and the moving
// averages of the other layer are exported under the names of its variables.
func ExampleOptions() {
	strat, done := strategytest.Example(2, 1)
	defer done()
	ctx, store := context.Background(), model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		fmt.Println("rows:", in[0].Shape().Dimensions[0])
		hidden := graph.Tanh(layers.Dense(rc.Scope("hidden"), in[0], true, 8))
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), hidden, true, 1), in[1])))
	}
	step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.05).Done(), loss,
		train.Options{Accumulate: 2, Freeze: []string{`^/hidden/`}, Average: 0.9}))
	x := [][]float32{{-1}, {-0.75}, {-0.5}, {-0.25}, {0.25}, {0.5}, {0.75}, {1}}
	for range 100 {
		if _, err := step.Run(ctx, x, x); err != nil {
			log.Fatal(err)
		}
	}
	held := strategytest.OK(train.NewEvaluation(strat, store, func(rc *strategy.ReplicaContext,
		in []*graph.Node) (averaged *graph.Node) {
		train.Averaged(rc, "train_step", func() { averaged = loss(rc, in) })
		return averaged
	}, train.Options{}))
	if err := held.Run(ctx, x, x); err != nil {
		log.Fatal(err)
	}
	results, err := held.Results(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Name, results[0].Value < 0.01)
	if err := step.SwapAverages(ctx); err != nil { // save a checkpoint now
		log.Fatal(err)
	}
	// Output:
	// rows: 2
	// rows: 4
	// loss true
}
