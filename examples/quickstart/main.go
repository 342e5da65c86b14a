// Command quickstart fits a line on 8 CPU devices: 4 replicas of 2 logical devices.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { signal.Reset() }) // a second signal ends the process at once
	check := func(err error) {
		switch {
		case ctx.Err() != nil:
			os.Exit(exitCode(ctx))
		case err != nil:
			log.Fatal(err)
		}
	}
	sys, err := system.Open(ctx, system.Options{CPUDevices: 8}) // on a TPU VM: system.Options{}
	check(err)
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 4, LogicalDevices: 2})
	check(err)
	defer strat.Close()

	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1)) // the same initial values in each run
	step, err := train.New(strat, store, optimizer.Adam().LearningRate(0.05).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			hidden := graph.Tanh(layers.Dense(rc.Scope("hidden"), in[0], true, 16))
			hidden = logical.Split(hidden, 1, 2) // half of the features on each logical device
			y := layers.Dense(rc.Scope("output"), hidden, true, 1)
			return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
		}, train.Options{})
	check(err)
	x := [][]float32{{-1}, {-0.75}, {-0.5}, {-0.25}, {0.25}, {0.5}, {0.75}, {1}}
	y := [][]float32{{-2}, {-1.5}, {-1}, {-0.5}, {0.5}, {1}, {1.5}, {2}}
	var loss *strategy.Mirrored
	for range 200 {
		loss, err = step.Run(ctx, x, y) // a global batch: 2 rows for each replica
		check(err)
	}
	value, err := loss.Float64(ctx)
	check(err)
	_, err = fmt.Println("fitted:", value < 1e-3, "on", strat.NumReplicasInSync(), "replicas")
	check(err)
}

// exitCode returns the exit code that a shell reports for a process that a signal terminated.
func exitCode(ctx context.Context) int {
	if strings.HasPrefix(context.Cause(ctx).Error(), syscall.SIGTERM.String()) {
		return 143
	}
	return 130
}
