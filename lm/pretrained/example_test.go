package pretrained_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/pretrained"
	"github.com/tpustrategy/tpustrategy/lm/weights"
)

// Loads a tiny Llama from two files with an index onto 4 devices: 2 replicas of 2 logical devices.
func Example() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 2)
	defer done()

	files, err := weights.Open("testdata/llama")
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close()
	config, err := weights.ReadConfig("testdata/llama")
	if err != nil {
		log.Fatal(err)
	}
	store := model.NewStore()
	llama := decoder{Config: config, loop: true}.function(strat, store) // or a training step
	if _, err := llama.Compiled(ctx, batch([][]int32{{1, 2, 3}, {4, 5, 6}})); err != nil {
		log.Fatal(err)
	}
	report, err := pretrained.Load(ctx, strat, store, files, weights.LlamaRules(config, weights.VariableNames{}),
		pretrained.Options{})
	if err != nil {
		log.Fatal(err)
	}
	query, _ := strat.Variables(store).Lookup("/layers/query/dense/weights")
	fmt.Println(len(report.OnDevices), "variables of", config.Layers, "layers,", query.Shape())
	// Output: 12 variables of 3 layers, (Float32)[3, 32, 32]
}
