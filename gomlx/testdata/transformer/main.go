// Command transformer is an ordinary GoMLX program: it trains a small language model of package
// zoo/transformer on one batch, with train.Loop. It uses only the import of this module that
// registers the backend.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	_ "github.com/tpustrategy/tpustrategy/gomlx"
)

var (
	vocabulary = flag.Int("vocabulary", 64, "number of tokens")
	width      = flag.Int("width", 32, "width of the model")
	layers     = flag.Int("layers", 2, "number of layers")
	batch      = flag.Int("batch", 16, "rows of a batch")
	length     = flag.Int("length", 8, "tokens of a row")
	steps      = flag.Int("steps", 3, "number of steps")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "transformer: %v\n", err)
		os.Exit(1)
	}
}

func logits(scope *model.Scope, _ any, inputs []*graph.Node) []*graph.Node {
	m := transformer.New(scope.In("transformer")).WithVocabSize(*vocabulary).WithEmbedDim(*width).WithNumLayers(*layers).
		WithNumHeads(4).WithHeadDim(*width / 4).WithFFNDim(4 * *width).WithMaxPosEmbed(*length).WithDType(dtypes.Float32)
	return []*graph.Node{m.Logits(inputs[0], transformer.CallOptions{})}
}

func run() error {
	backend, err := compute.New()
	if err != nil {
		return err
	}
	defer backend.Finalize()
	tokens, next := make([]int32, *batch**length), make([]int32, *batch**length)
	for i := range tokens {
		tokens[i] = int32(i * 7 % *vocabulary)
		next[i] = int32((i + 1) * 7 % *vocabulary)
	}
	data, err := dataset.InMemoryFromData(backend, "tokens", []any{tensors.FromFlatDataAndDimensions(tokens, *batch, *length)},
		[]any{tensors.FromFlatDataAndDimensions(next, *batch, *length, 1)})
	if err != nil {
		return err
	}
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(7))
	trainer := train.NewTrainer(backend, store, logits, loss.SparseCategoricalCrossEntropyLogits, optimizer.Adam().LearningRate(0.01).Done(), nil, nil)
	loop := train.NewLoop(trainer)
	train.EveryNSteps(loop, 1, "print", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		fmt.Printf("step %d: loss %.5f\n", loop.LoopStep, metrics[0].Value())
		return nil
	})
	if _, err := loop.RunSteps(data.BatchSize(*batch, true).Infinite(true), *steps); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
