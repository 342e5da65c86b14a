package train_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// parity learns from the last two bits of numbers whether they are odd, and reports its accuracy.
func parity(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	n := in[0] // [rowCount]
	one := graph.OnesLike(n)
	odd := graph.BitwiseAnd(n, one)
	bits := graph.Stack([]*graph.Node{odd, graph.BitwiseAnd(graph.BitwiseShiftRightLogical(n, one), one)}, -1)
	logits := layers.Dense(rc.Scope("model"), graph.ConvertDType(bits, dtypes.Float32), true, 2)
	train.Report(rc, "accuracy", train.Correct(logits, odd), nil)
	labels := graph.ExpandAxes(odd, -1)
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{labels}, []*graph.Node{logits}))
}

// A training step clips its gradients, follows a schedule and accumulates metrics. An evaluation
// uses held-out numbers; its last batch is not full.
func ExampleNewEvaluation() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer strat.Close()

	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	metrics := []train.Metric{train.MeanLoss(), train.Reported("accuracy")}
	step, err := train.New(strat, store, optimizer.Adam().Done(), parity, train.Options{
		ClipNorm: 1, Norms: true, LearningRate: schedule.WarmUp(10, schedule.Cosine(0.2, 0, 89)), Metrics: metrics,
	})
	if err != nil {
		log.Fatal(err)
	}
	held, err := train.NewEvaluation(strat, store, parity, train.Options{Metrics: metrics})
	if err != nil {
		log.Fatal(err)
	}
	for range 100 {
		if _, err := step.Run(ctx, []int64{0, 1, 2, 3, 4, 5, 6, 7}); err != nil {
			log.Fatal(err)
		}
	}
	readings, err := step.Metrics(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range readings {
		fmt.Println(r.Name, "of", r.Weight)
	}

	batches, err := feed.FromDataset(ctx, strat, input.Range(30).Batch(8, false), feed.Options{}) // 8, 8, 8 and 6
	if err != nil {
		log.Fatal(err)
	}
	defer batches.Close()
	results, err := held.Over(ctx, batches.Args(ctx))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("held out: loss below 0.1: %t, %s %.2f of %.0f numbers\n", results[0].Value < 0.1, results[1].Name,
		results[1].Value, results[1].Weight)
	// Output:
	// loss of 800
	// accuracy of 800
	// gradient_norm of 1
	// parameter_norm of 1
	// learning_rate of 1
	// held out: loss below 0.1: true, accuracy 1.00 of 30 numbers
}
