package generate_test

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

	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// On 2 replicas, a model with one attention layer learns to count to 7 and back to 0. It then
// continues two prompts.
func ExampleGenerator_Generate() {
	const vocabulary, heads, size = 8, 2, 8
	counting := func(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) *graph.Node {
		x := layers.Embedding(rc.Scope("tokens"), graph.InsertAxes(tokens, -1), dtypes.Float32, vocabulary, heads*size)
		rows, n := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
		project := func(name string) *graph.Node {
			return graph.Reshape(layers.Dense(rc.Scope(name), x, false, heads*size), rows, n, heads, size)
		}
		read := cache.Attend(project("queries"), project("keys"), project("values"))
		x = graph.Add(x, graph.Reshape(read, rows, n, heads*size))
		return layers.Dense(rc.Scope("head"), x, true, vocabulary)
	}

	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer strat.Close()

	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	step, err := train.New(strat, store, optimizer.Adam().LearningRate(0.05).Done(), func(rc *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		logits := counting(rc, in[0], nil)
		return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{graph.InsertAxes(in[1], -1)},
			[]*graph.Node{logits}))
	}, train.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var tokens, next [][]int32 // rows that start with each number
	for i := range int32(vocabulary) {
		tokens = append(tokens, []int32{i, (i + 1) % 8, (i + 2) % 8, (i + 3) % 8})
		next = append(next, []int32{(i + 1) % 8, (i + 2) % 8, (i + 3) % 8, (i + 4) % 8})
	}
	for range 40 {
		if _, err := step.Run(ctx, tokens, next); err != nil {
			log.Fatal(err)
		}
	}

	g, err := generate.New(strat, store, counting, generate.Options{Layers: 1, KeyHeads: heads, HeadSize: size,
		Vocabulary: vocabulary, MaxLength: 16})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	out, err := g.Generate(ctx, [][]int32{{2, 3}, {5}}, generate.Sampling{MaxTokens: 6, Stop: []int32{0}})
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range out {
		fmt.Println(o.Tokens, o.Stopped)
	}
	// Output:
	// [4 5 6 7] true
	// [6 7] true
}
