// Command gpt trains a language model on the sources of Go, and generates text with it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/aot"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/lm/decoder"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/lm/text"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

func main() { os.Exit(trainer.Main("gpt", run)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("gpt", flag.ContinueOnError)
	f := trainer.AddFlags(flags, trainer.Defaults{Steps: 1200, Devices: 8})
	preset := flags.String("preset", "tiny", "size of the model: tiny, 125m, 1b3 or llama3-8b")
	vocabulary := flags.Int("vocab", 0, "tokens of the vocabulary; 256 means bytes, 0 means the preset's number")
	data := flags.String("data", "", "text file to train on; by default the sources of Go's standard library")
	tokens := flags.Bool("tokens", false, "shard activations between layers by tokens, which saves memory")
	prompt := flags.String("generate", "", "prompt that the model continues, during the training and after it")
	if err := f.Parse(args, stderr); err != nil {
		return err
	}
	c, err := decoder.Preset(*preset)
	if err != nil {
		return err
	}
	c.Batch, c.Vocabulary, c.Remat, c.ShardByTokens = cmp.Or(f.Batch, c.Batch), cmp.Or(*vocabulary,
		c.Vocabulary), f.Remat, *tokens
	if err := c.Validate(f.Replicas, f.Logical, f.Accumulate); err != nil {
		return err
	}
	if f.Requested() {
		return trainer.NewExitError(f.Main(ctx, f.StrategyOptions(decoder.Rules()),
			func(s *strategy.TPUStrategy) (aot.Step, []any, error) {
				c.Batch, c.Remat, c.ShardByTokens = cmp.Or(f.Batch, c.Batch), f.Remat, *tokens // which -try may have changed
				step, err := newStep(s, c, f)
				return step, []any{c.BatchShape()}, err
			}))
	}
	corpus, err := text.LoadCorpus(ctx, *data, text.CorpusOptions{Vocabulary: c.Vocabulary, HeldOut: 0.02, Seed: 1,
		Progress: f.StartTask})
	if err != nil {
		return err
	}
	windows, err := corpus.Training.Windows(c.Sequence, text.WindowOptions{Seed: uint64(f.Seed)})
	if err != nil {
		return err
	}
	strat, done, err := f.Open(ctx, f.StrategyOptions(decoder.Rules()), c.Parameters())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	step, err := newStep(strat, c, f)
	if err != nil {
		return err
	}
	third := fit.Every(max(f.Steps/3, 1))
	held, err := trainer.BitsPerByteHooks(step, c.Loss, corpus.HeldOut, c.Sequence, c.Batch, third,
		train.Options{Precision: f.Precision})
	if err != nil {
		return err
	}
	samples := f.SampleHooks(step, c.Logits, generate.Options{Layers: c.Layers, KeyHeads: c.KeyHeads,
		HeadSize: c.FeaturesPerHead(), Vocabulary: c.Vocabulary, MaxLength: c.Sequence, Precision: f.Precision},
		corpus.Tokenizer, *prompt, fit.Every(max(f.Steps/24, 1)), stdout)
	result, err := fit.Run(ctx, step, fit.Dataset(windows.Repeat(-1).Batch(c.Batch, true)),
		f.FitOptions(map[string]string{"preset": c.Name, "batch": fmt.Sprint(c.Batch)}), slices.Concat(held,
			f.Hooks(third, "loss", "held/nats"), samples)...)
	fmt.Fprintf(stdout, "Held out: %d bytes. By token frequencies alone %.3f bits per byte, by gzip -9 %.3f. Files: %s\n",
		corpus.HeldOut.Bytes(), corpus.Unigram, corpus.Gzip, f.Out)
	return errors.Join(err, trainer.WriteTextResult(stdout, result, c.Sequence, c.Parameters()))
}

func newStep(strat *strategy.TPUStrategy, c decoder.Config, f *trainer.Flags) (*train.Step, error) {
	return train.New(strat, f.NewStore(), optimizer.Adam().Betas(0.9, 0.95).WeightDecay(0.1).Done(), c.Loss, train.Options{
		Precision: f.Precision, Accumulate: f.Accumulate, ClipNorm: 1,
		LearningRate: schedule.WarmUp(f.Steps/20+1, schedule.Cosine(3e-3, 6e-5, max(f.Steps-f.Steps/20-1, 1))),
	})
}
