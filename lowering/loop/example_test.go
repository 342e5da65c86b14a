package loop_test

import (
	"context"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Twelve layers in a loop are split over two logical devices. Products are kept for the backward
// pass, and all other values are recomputed.
func ExampleLayers() {
	strat, done := strategytest.Example(1, 2)
	defer done()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			x := loop.Layers(rc.Scope("layers"), 12, in[0], func(scope *model.Scope, x *graph.Node) *graph.Node {
				h := graph.Tanh(logical.Split(layers.Dense(scope.In("up"), x, true, 16), 1, 2))
				return graph.Add(x, layers.Dense(scope.In("down"), h, true, 4))
			}, loop.Options{Keep: remat.Products()})
			return graph.ReduceAllMean(graph.Square(graph.Sub(x, in[1])))
		}, train.Options{}))
	x := [][]float32{{1, 0, 0, 0}, {0, 1, 0, 0}}
	var losses []float64
	for range 50 {
		loss, err := step.Run(context.Background(), x, x)
		if err != nil {
			panic(err)
		}
		value, err := loss.Float64(context.Background())
		if err != nil {
			panic(err)
		}
		losses = append(losses, value)
	}
	fmt.Println(losses[49] < losses[0]/2, store.GetVariable("/layers/up/dense/weights").Shape())
	// Output: true (Float32)[12, 4, 16]
}

// A loop without variables computes powers of a number, their stack and their sum.
func ExampleRun() {
	strat, done := strategytest.Example(1, 1)
	defer done()
	powers := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		out := loop.Run(nil, 5, loop.Arguments{Carried: []*graph.Node{graph.OnesLike(in[0])}, Shared: in[:1]},
			func(l *loop.Layer) loop.Results {
				y := graph.Mul(l.Carried[0], l.Shared[0])
				number := graph.ConvertDType(l.Index, dtypes.Float32)
				return loop.Results{Carried: []*graph.Node{y}, Stacked: []*graph.Node{y},
					Summed: []*graph.Node{graph.Mul(y, number)}}
			}, loop.Options{})
		return []*graph.Node{out.Carried[0], out.Stacked[0], out.Summed[0]}
	}, strategy.FunctionOptions{})
	results, err := powers.Run(context.Background(), []float32{2})
	if err != nil {
		panic(err)
	}
	for _, r := range results {
		value, err := r.Local(context.Background(), 0)
		if err != nil {
			panic(err)
		}
		fmt.Println(value.Value())
	}
	// Output:
	// [32]
	// [[2] [4] [8] [16] [32]]
	// [196]
}
