package main

import (
	"context"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/logical"
)

// asJAX contains the compiler options that JAX 0.10.2 sets for the same plugin and that affect the
// compiled step.
var asJAX = map[string]any{"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"}

// peer returns the decoder that is compared with other frameworks, or a tiny one if effort is reduced.
func peer() transformer.Config {
	c := transformer.Peer()
	if effort < 1 {
		c = transformer.Tiny()
		c.Layers = 1
	}
	return c
}

// transformerStep returns a benchmark of a decoder's training step with the tokens on the devices
// and JAX's compiler options. It waits for each step.
func transformerStep(logicalDevices, batch int) func(ctx context.Context, r *rig) (row, error) {
	return func(ctx context.Context, r *rig) (row, error) {
		c := peer()
		if effort == 1 {
			c.Batch = batch
		}
		opts := c.Options(0, logicalDevices)
		opts.CompilerOptions = asJAX
		strat, err := r.strategy(ctx, opts)
		if err != nil {
			return row{}, err
		}
		tokens, err := strat.SplitBatch(ctx, c.Tokens(), logical.Annotation{}, false)
		if err != nil {
			return row{}, err
		}
		bound, err := c.Step(strat, model.NewStore()).Bind(ctx, tokens)
		if err != nil {
			return row{}, err
		}
		r.later(func() { _ = bound.Close() })
		return repeat{turns: 22, limit: time.Minute, ops: 1}.time(launched(ctx, bound), nil)
	}
}

// generateDecode returns a benchmark of generating one token for 8 rows with a cache of 320
// positions. chunk is the number of tokens per launch. The time is averaged over texts of 128
// tokens and includes the processing of the prompts.
func generateDecode(chunk int) func(ctx context.Context, r *rig) (row, error) {
	return func(ctx context.Context, r *rig) (row, error) {
		c, made := peer(), sized(128, 4)
		if effort == 1 {
			c.Sequence = 256
		}
		strat, err := r.strategy(ctx, c.Options(0, min(r.devices, 2)))
		if err != nil {
			return row{}, err
		}
		o := c.Generator()
		o.BatchSize, o.TokensPerLaunch = 8, chunk
		g, err := generate.New(strat, model.NewStore(), c.Logits, o)
		if err != nil {
			return row{}, err
		}
		r.later(func() { _ = g.Close() })
		var prompts [][]int32
		for i := range int32(o.BatchSize) {
			prompts = append(prompts, []int32{i, 1, 2, 3})
		}
		return repeat{turns: 9, limit: time.Minute, ops: made}.time(func(n int) (time.Duration, error) {
			start := time.Now()
			_, err := g.Generate(ctx, prompts, generate.Sampling{MaxTokens: n})
			return time.Since(start), err
		}, nil)
	}
}
