package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/lm/text"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

const width, heads, length = 64, 4, 64

func main() { os.Exit(trainer.Main("gpt", run)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := trainer.AddFlags(flag.NewFlagSet("gpt", flag.ContinueOnError), trainer.Defaults{Steps: 40, Devices: 8})
	if err := f.Parse(args, stderr); err != nil {
		return err
	}
	corpus, err := text.LoadCorpus(ctx, "", text.CorpusOptions{HeldOut: 0.01, Progress: f.StartTask})
	if err != nil {
		return err
	}
	windows, err := corpus.Training.Windows(length, text.WindowOptions{})
	if err != nil {
		return err
	}
	strat, done, err := f.Open(ctx, f.StrategyOptions(nil), 0)
	if err != nil {
		return err
	}
	defer done()
	step, err := train.New(strat, f.NewStore(), optimizer.Adam().LearningRate(3e-3).Done(), loss, train.Options{})
	if err != nil {
		return err
	}
	samples := f.SampleHooks(step, logits, generate.Options{Layers: 1, KeyHeads: heads, HeadSize: width / heads,
		Vocabulary: 256, MaxLength: length},
		corpus.Tokenizer, "func ", 20, stdout)
	_, err = fit.Run(ctx, step, fit.Dataset(windows.Repeat(-1).Batch(32, true)), f.FitOptions(nil),
		append(samples, f.Hooks(20, "loss")...)...)
	return err
}

func logits(rc *strategy.ReplicaContext, tokens *graph.Node, past *generate.Cache) *graph.Node {
	positions := past.Positions(tokens)
	x := layers.Embedding(rc.Scope("tokens"), graph.InsertAxes(tokens, -1), dtypes.Float32, 256, width)
	project := func(name string) *graph.Node { return layers.Dense(rc.Scope("%s", name), x, false, heads, width/heads) }
	q, k := generate.Rotary(project("query"), positions, 10000), generate.Rotary(project("key"), positions, 10000)
	y := past.Attend(q, k, project("value"))
	x = graph.Add(x, layers.Dense(rc.Scope("out"), graph.Reshape(y, x.Shape().Dimensions...), false, width))
	return layers.Dense(rc.Scope("head"), graph.Tanh(x), true, 256)
}

func loss(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	all := logits(rc, graph.SliceAxis(in[0], 1, graph.AxisRange(0, length)), nil)
	next := graph.OneHot(graph.SliceAxis(in[0], 1, graph.AxisRange(1)), 256, all.DType())
	return graph.Neg(graph.ReduceAllMean(graph.ReduceSum(graph.Mul(next, graph.LogSoftmax(all)), -1)))
}
