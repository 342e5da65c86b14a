package train_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Two texts on two replicas have one and three unmasked tokens. The loss is the mean over the four
// tokens, (8 + 3*4) / 4. The mean of the replicas' means would be (8 + 4) / 2.
func ExampleWeighted() {
	strat, done := strategytest.Example(2, 1)
	defer done()
	loss := train.Weighted(func(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node) {
		bias := rc.Scope().VariableWithValue("bias", float32(0)).NodeValue(rc.Graph())
		losses, mask := graph.Add(in[0], bias), in[1] // a loss for each token
		return graph.ReduceAllSum(graph.Mul(losses, mask)), graph.ReduceAllSum(mask)
	})
	step := strategytest.OK(train.New(strat, model.NewStore(), optimizer.Adam().Done(), loss, train.Options{}))
	losses, mask := [][]float32{{8, 0, 0}, {4, 4, 4}}, [][]float32{{1, 0, 0}, {1, 1, 1}}
	mean, err := step.Run(context.Background(), losses, mask)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strategytest.Shared(mean))
	// Output:
	// 5
}
