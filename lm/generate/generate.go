package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Output is the text generated from one prompt.
type Output struct {
	// Tokens are the generated tokens, without the prompt and without a token of Sampling.Stop.
	Tokens []int32
	// Stopped is true if a token of Sampling.Stop ended the output, and false if Sampling.MaxTokens
	// was reached.
	Stopped bool
}

// Generate continues each of the prompts, which may differ in length, and returns one output for each,
// in the same order. An output depends only on its own prompt and the prompt's index in the call.
// Generate uses the current values of the store's variables on the devices.
//
// With several processes, each process must pass all prompts in the same order, and receives all
// outputs.
//
// If ctx ends or Sampling.Stream returns an error, Generate returns the tokens generated so far and the
// error when the current launch is complete.
//
// Invalid prompts, an invalid sampling and an invalid model are errors of kind ValueError, which are
// returned before the first launch. Logits that contain NaN are an error of kind InvalidArgumentError.
// Other errors are [strategy.TraceError], [strategy.ErrClosed] and the errors of the compiler.
func (g *Generator) Generate(ctx context.Context, prompts [][]int32, s Sampling) ([]Output, error) {
	if err := engine.Internal(g.strategy).CheckUsable(ctx, "generating"); err != nil {
		return nil, err
	}
	if err := g.opts.checkPrompts(prompts, s); err != nil {
		return nil, err
	}
	leave, err := g.lockState(ctx, len(prompts))
	if err != nil {
		return nil, err
	}
	defer leave()
	outputs := make([]Output, len(prompts))
	batch := g.state.rows * g.strategy.NumReplicasInSync()
	for first := 0; first < len(prompts); first += batch {
		last := min(first+batch, len(prompts))
		r := &batchGeneration{Generator: g, sampling: s, firstPrompt: first, batchSize: batch, prompts: prompts[first:last],
			outputs: outputs[first:last]}
		if err := r.generate(ctx); err != nil {
			return outputs, err
		}
	}
	return outputs, nil
}

// batchGeneration generates the outputs of at most as many prompts as the cache has rows.
type batchGeneration struct {
	*Generator
	sampling               Sampling
	firstPrompt, batchSize int
	prompts                [][]int32
	outputs                []Output
}

func (r *batchGeneration) generate(ctx context.Context) error {
	if err := r.prefill(ctx); err != nil {
		return err
	}
	bound, err := r.decodeProgramFor(r.sampling.variant()).bindVariables(ctx)
	if err != nil {
		return err
	}
	for hasMore := true; hasMore; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := bound.Launch(ctx); err != nil {
			return err
		}
		results := bound.Results()
		tokens, err := r.fetchTokens(ctx, results[len(results)-1])
		if err != nil {
			return err
		}
		if hasMore, err = r.appendTokens(tokens); err != nil {
			return err
		}
	}
	return nil
}

func (r *batchGeneration) prefill(ctx context.Context) error {
	t, s := r.state, r.sampling
	longest := 1
	for _, p := range r.prompts {
		longest = max(longest, len(p)-1)
	}
	chunk := t.opts.PromptTokensPerLaunch
	slots := (longest + chunk - 1) / chunk * chunk
	tokens, row := make([]int32, r.batchSize*slots), make([]int32, 0, 3*r.batchSize)
	seed, params := make([]uint32, 0, 2*r.batchSize), make([]float32, 0, 3*r.batchSize)
	for i := range r.batchSize {
		prompt, remaining := []int32{0}, 0 // a row without a prompt
		if i < len(r.prompts) {
			prompt, remaining = r.prompts[i], s.MaxTokens
		}
		n := len(prompt) - 1
		copy(tokens[(i+1)*slots-n:], prompt[:n])
		row = append(row, prompt[n], int32(slots-n), int32(remaining))
		key := splitMix64(s.Seed + uint64(r.firstPrompt+i)*0x9E3779B97F4A7C15)
		seed = append(seed, uint32(key), uint32(key>>32))
		params = append(params, float32(s.Temperature), float32(s.TopK), float32(s.TopP))
	}
	stop := make([]bool, t.opts.Vocabulary)
	for _, token := range s.Stop {
		stop[token] = true
	}
	stops, err := r.strategy.Mirror(ctx, stop, logical.Annotation{})
	if err != nil {
		return err
	}
	defer stops.Close()
	for slot := 0; slot < slots; slot += chunk {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		chunkTokens := make([]int32, 0, r.batchSize*chunk)
		for i := range r.batchSize {
			chunkTokens = append(chunkTokens, tokens[i*slots+slot:i*slots+slot+chunk]...)
		}
		if err := r.prefillChunk(ctx, int32(slot), tensors.FromFlatDataAndDimensions(chunkTokens, r.batchSize, chunk),
			tensors.FromFlatDataAndDimensions(row, r.batchSize, 3), tensors.FromFlatDataAndDimensions(seed, r.batchSize, 2),
			tensors.FromFlatDataAndDimensions(params, r.batchSize, 3), stops); err != nil {
			return err
		}
	}
	return nil
}

func (r *batchGeneration) prefillChunk(ctx context.Context, slot int32, args ...any) error {
	start, err := r.strategy.Mirror(ctx, slot, logical.Annotation{})
	if err != nil {
		return err
	}
	defer start.Close()
	results, err := r.prefillFunction.Run(ctx, append(args, start)...)
	if err != nil {
		return err
	}
	defer results[0].Close()
	if r.layersChecked {
		return nil
	}
	layers, err := results[0].Local(ctx, r.strategy.LocalReplicas()[0])
	if err != nil {
		return err
	}
	if n := int(tensors.ToScalar[int32](layers)); n != r.opts.Layers {
		return layerCountError(n, r.opts.Layers)
	}
	r.layersChecked = true
	return nil
}

// fetchTokens copies the tokens of a launch to the host, row by row. Each process receives the
// tokens of all replicas.
func (r *batchGeneration) fetchTokens(ctx context.Context, v strategy.Value) (tokens []int32, err error) {
	if r.strategy.NumProcesses() > 1 {
		gathered, err := r.strategy.Gather(ctx, v, 0)
		if err != nil {
			return nil, err
		}
		defer gathered.Close()
		value, err := gathered.Value(ctx)
		if err != nil {
			return nil, err
		}
		return tensors.MustCopyFlatData[int32](value), nil
	}
	parts, err := r.strategy.LocalResults(ctx, v)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		tokens = append(tokens, tensors.MustCopyFlatData[int32](part)...)
	}
	return tokens, nil
}

// appendTokens appends the tokens of a launch to the outputs and reports whether an output is
// incomplete.
func (r *batchGeneration) appendTokens(tokens []int32) (hasMore bool, err error) {
	chunk := r.state.opts.TokensPerLaunch
	for i := range r.outputs {
		out := &r.outputs[i]
		numBefore := len(out.Tokens)
		for _, token := range tokens[i*chunk : (i+1)*chunk] {
			switch {
			case out.Stopped || len(out.Tokens) == r.sampling.MaxTokens:
			case token < 0:
				// NaNs are in the cache, too.
				return false, errors.Join(&errkind.Fault{Op: "generate", Subject: fmt.Sprintf("prompt %d", r.firstPrompt+i),
					Reason: "the model's logits are NaN",
					Hint:   "check the variables: a training step may have made them infinite or NaN",
					Class:  errkind.InvalidArgumentError}, r.releaseState())
			case slices.Contains(r.sampling.Stop, token):
				out.Stopped = true
			default:
				out.Tokens = append(out.Tokens, token)
			}
		}
		hasMore = hasMore || !out.Stopped && len(out.Tokens) < r.sampling.MaxTokens
		if newTokens := out.Tokens[numBefore:]; len(newTokens) > 0 && r.sampling.Stream != nil {
			if err := r.sampling.Stream(r.firstPrompt+i, slices.Clone(newTokens)); err != nil {
				return false, err
			}
		}
	}
	return hasMore, nil
}

func splitMix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
