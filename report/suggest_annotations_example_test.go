package report_test

import (
	"context"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	gomlxlayers "github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Both layers are split by columns, so the second needs the complete result of the first. If the
// second is split by rows, only the sum over its rows is sent.
func ExampleSuggestAnnotations() {
	ctx := context.Background()
	sys := strategytest.OK(system.Open(ctx, system.Options{CPUDevices: 2}))
	defer sys.Close()
	strat := strategytest.OK(strategy.New(sys, strategy.Options{
		LogicalDevices: 2, Variables: logical.Rules{logical.Match(`^/(up|down)/`, logical.SplitInto(1, 2))},
	}))
	defer strat.Close()
	step := strategytest.OK(train.New(strat, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := graph.Tanh(gomlxlayers.Dense(rc.Scope("up"), in[0], false, 64))
			return graph.ReduceAllMean(graph.Square(gomlxlayers.Dense(rc.Scope("down"), h, false, 16)))
		}, train.Options{}))
	compiled := strategytest.OK(step.Compiled(ctx, shapes.Make(dtypes.Float32, 32, 16)))
	suggested := strategytest.OK(report.SuggestAnnotations(ctx, compiled, report.AnnotationOptions{}))
	best := suggested.All[0]
	fmt.Printf("%s from %s to %s: %d collectives less, %d bytes sent instead of %d\n",
		best.Name, best.From, best.To, len(best.Removes), best.After.Sent, suggested.Now.Sent)
	// Output: /down/dense/weights from 1,2 to 2,1: 3 collectives less, 2048 bytes sent instead of 12292
}
