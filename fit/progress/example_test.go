package progress_test

import (
	"context"
	"fmt"
	"os"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func Example() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sys.Close()
	line := progress.NewLine(os.Stderr, progress.Options{Record: progress.DefaultRecordFile()})
	defer line.Close()
	strat, err := strategy.New(sys, strategy.Options{Phases: line.SetPhase})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer strat.Close()
	double := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MulScalar(in[0], 2)}
	}, strategy.FunctionOptions{})
	results, err := double.Run(ctx, float32(21)) // the line shows the compilation if it takes long
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(results[0])
}
