package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/transformer"
	"github.com/tpustrategy/tpustrategy/strategy/generate"
)

// generateDecode returns the benchmark of a further token of 8 rows, with the decoder of the
// comparison, 4 layers of width 256, and a cache of 320 slots: with 32 tokens a launch, and in the
// note with one. The time is the median of several texts of 128 tokens, with the reading of their
// prompts.
func generateDecode(replicas, logicalDevices int) func(ctx context.Context, devices int) (row, error) {
	return func(ctx context.Context, _ int) (row, error) {
		c, made, texts, chunks := transformer.Peer(), 128, 9, []int{32, 1}
		c.Sequence = 256
		if effort < 1 {
			c, made, texts, chunks = transformer.Tiny(), 4, 1, chunks[:1]
			c.Layers = 1
		}
		var notes []string
		var times []float64
		for _, chunk := range chunks {
			us, err := decodeTime(ctx, c, replicas, logicalDevices, chunk, made, texts)
			if err != nil {
				return row{}, err
			}
			times = append(times, us)
			notes = append(notes, fmt.Sprintf("%d x %d, %d a launch: %.0f us, %.0f tokens a second", replicas, logicalDevices, chunk, us, 8e6/us))
		}
		return row{Us: round(times[0]), Note: strings.Join(notes, "; ")}, nil
	}
}

// decodeTime is the time of one token of each row, in microseconds.
func decodeTime(ctx context.Context, c transformer.Config, replicas, logicalDevices, chunk, made, texts int) (float64, error) {
	strat, done, err := transformerOn(ctx, c, replicas, logicalDevices, nil)
	if err != nil {
		return 0, err
	}
	defer done()
	o := c.Generator()
	o.Batch, o.Chunk = 8, chunk
	g, err := generate.New(strat, model.NewStore(), c.Logits, o)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	var prompts [][]int32
	for i := range int32(o.Batch) {
		prompts = append(prompts, []int32{i, 1, 2, 3})
	}
	var times []time.Duration
	for i := range texts + 1 {
		start := time.Now()
		if _, err := g.Generate(ctx, prompts, generate.Sampling{MaxTokens: made}); err != nil {
			return 0, err
		}
		if i > 0 { // the first compiles
			times = append(times, time.Since(start)/time.Duration(made))
		}
	}
	return median(times), nil
}
