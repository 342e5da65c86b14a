package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
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
		var out row
		for _, chunk := range chunks {
			us, cpu, err := decodeTime(ctx, c, replicas, logicalDevices, chunk, made, texts)
			if err != nil {
				return row{}, err
			}
			if out.Us == 0 {
				out.Us, out.CPUUs = round(us), round(cpu)
			}
			notes = append(notes, fmt.Sprintf("%d x %d, %d a launch: %.0f us, %.0f us of processor time, %.0f tokens a second",
				replicas, logicalDevices, chunk, us, cpu, 8e6/us))
		}
		out.Note = strings.Join(notes, "; ")
		return out, nil
	}
}

// decodeTime is the time of one token of each row, and the processor time, in microseconds.
func decodeTime(ctx context.Context, c transformer.Config, replicas, logicalDevices, chunk, made, texts int) (us, cpu float64, err error) {
	strat, done, err := transformerOn(ctx, c, replicas, logicalDevices, nil)
	if err != nil {
		return 0, 0, err
	}
	defer done()
	o := c.Generator()
	o.Batch, o.Chunk = 8, chunk
	g, err := generate.New(strat, model.NewStore(), c.Logits, o)
	if err != nil {
		return 0, 0, err
	}
	defer g.Close()
	var prompts [][]int32
	for i := range int32(o.Batch) {
		prompts = append(prompts, []int32{i, 1, 2, 3})
	}
	var times []time.Duration
	var used time.Duration
	for i := range texts + 1 {
		start, before := time.Now(), cpuTime()
		if _, err := g.Generate(ctx, prompts, generate.Sampling{MaxTokens: made}); err != nil {
			return 0, 0, err
		}
		if i > 0 { // the first compiles
			times = append(times, time.Since(start)/time.Duration(made))
			used += cpuTime() - before
		}
	}
	return median(times), float64(used.Microseconds()) / float64(texts*made), nil
}
