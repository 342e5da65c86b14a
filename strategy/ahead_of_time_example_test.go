package strategy_test

import (
	"context"
	"os"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// The step is compiled for a described slice of 16 chips. libtpu must be installed, and its
// environment variables must be set before it is loaded: see system.Describe.
func ExampleNewAheadOfTime() {
	ctx := context.Background()
	slice, err := system.Describe(ctx, "v5e:4x4", system.DescribeOptions{})
	if err != nil {
		panic(err)
	}
	defer slice.Close()
	strat, err := strategy.NewAheadOfTime(slice, strategy.Options{
		LogicalDevices: 4,
		Variables:      logical.Rules{logical.Match(`/hidden/.*weights`, logical.SplitInto(1, 4))},
	})
	if err != nil {
		panic(err)
	}
	defer strat.Close()
	step, err := train.New(strat, model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		h := graph.Tanh(logical.Split(layers.Dense(rc.Scope("hidden"), in[0], true, 4096), 1, 4))
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), h, true, 1), in[1])))
	}, train.Options{})
	if err != nil {
		panic(err)
	}
	// Shapes of the complete batch replace its tensors.
	compiled, err := step.Compiled(ctx, shapes.Make(dtypes.Float32, 1024, 512), shapes.Make(dtypes.Float32, 1024, 1))
	if err != nil {
		panic(err) // a *strategy.MemoryError if it does not fit
	}
	r, err := report.Of(compiled)
	if err != nil {
		panic(err)
	}
	if err := r.WriteText(os.Stdout); err != nil {
		panic(err)
	}
}
