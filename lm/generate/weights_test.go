package generate_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// TestGenerationReadsTheWeightsAsTheyAre generates between training steps of the same process, with
// sharded parameters, and then from a checkpoint on another mesh.
func TestGenerationReadsTheWeightsAsTheyAre(t *testing.T) {
	sys := plugintest.System(t, devices)
	c := llama()
	c.Loop, c.Shared = true, strategytest.Share(logical.ShardParameters, 2)
	s, store := strategytest.On(t, sys, c.Options(2, 1)), seeded()
	step := c.Step(s, store)
	g, err := generate.New(s, store, c.Logits, small(c))
	require.NoError(t, err)
	defer g.Close()
	greedy := func(g *generate.Generator) [][]int32 {
		out, err := g.Generate(t.Context(), prompts, generate.Sampling{MaxTokens: made})
		require.NoError(t, err)
		return tokens(out)
	}
	var before, after [][]int32
	for range 2 {
		for range 4 {
			_, err := step.Run(t.Context(), c.Tokens())
			require.NoError(t, err)
		}
		before, after = after, greedy(g)
	}
	assert.NotEqual(t, before, after, "the steps train")
	require.NoError(t, s.Variables(store).Pull(t.Context()))
	one := strategytest.On(t, sys, c.Options(1, 1))
	want, _ := whole(t, one, store, c.Logits, prompts)
	assert.Equal(t, want, after)

	m, err := checkpoint.OpenManager(t.Context(), t.TempDir(), checkpoint.ManagerOptions{})
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Save(t.Context(), 8, checkpoint.StrategyGroup(s, store), checkpoint.SaveOptions{}))
	require.NoError(t, m.Wait(t.Context()))
	fresh, empty := strategytest.On(t, sys, c.Options(1, 2)), seeded()
	o := small(c)
	o.BatchSize = len(prompts)
	restored, err := generate.New(fresh, empty, c.Logits, o)
	require.NoError(t, err)
	defer restored.Close()
	_, err = restored.Compiled(t.Context(), generate.Sampling{}) // creates the variables
	require.NoError(t, err)
	last, err := m.Latest(t.Context())
	require.NoError(t, err)
	defer last.Close()
	require.NoError(t, last.Restore(t.Context(), checkpoint.StrategyGroup(fresh, empty), checkpoint.RestoreOptions{}))
	assert.Equal(t, want, greedy(restored), "from the checkpoint")
}

// TestGenerationWithAveragedWeights generates with the weight averages of a training step.
func TestGenerationWithAveragedWeights(t *testing.T) {
	c := gpt()
	c.Loop, c.Layers = true, 1
	s, store := strategytest.On(t, plugintest.System(t, devices), c.Options(2, 1)), seeded()
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), c.Loss,
		train.Options{Name: "averaged", Average: 0.9}))
	for range 4 {
		_, err := step.Run(t.Context(), c.Tokens())
		require.NoError(t, err)
	}
	averaged := func(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) (logits *graph.Node) {
		train.Averaged(rc, "averaged", func() { logits = c.Logits(rc, tokens, cache) })
		return logits
	}
	var all [][][]int32
	for _, m := range []generate.ModelFunc{averaged, c.Logits} {
		g, err := generate.New(s, store, m, small(c))
		require.NoError(t, err)
		defer g.Close()
		out, err := g.Generate(t.Context(), prompts, generate.Sampling{MaxTokens: made})
		require.NoError(t, err)
		all = append(all, tokens(out))
	}
	want, _ := whole(t, s, store, averaged, prompts)
	assert.Equal(t, want, all[0])
	assert.NotEqual(t, all[0], all[1], "the averages lag behind")
}

// TestHalfPrecisionIsThatOfWholeSequences computes and caches in bfloat16. The logits equal the
// logits of a complete sequence in bfloat16, up to the rounding of sums in another order.
func TestHalfPrecisionIsThatOfWholeSequences(t *testing.T) {
	sys := plugintest.System(t, devices)
	c := gpt()
	c.Compute = dtypes.BFloat16
	s := strategytest.On(t, sys, c.Options(2, 1))
	r := newRecorder(t, s, c.Logits, 6, c)
	g, err := generate.New(s, seeded(), r.logits, small(c))
	require.NoError(t, err)
	defer g.Close()
	_, err = g.Generate(t.Context(), prompts, generate.Sampling{MaxTokens: made})
	require.NoError(t, err)
	_, want := whole(t, strategytest.On(t, sys, c.Options(1, 1)), seeded(), c.Logits, prompts)
	for i, p := range prompts {
		// A different token would change the following tokens.
		equalLogits(t, want[i][:1], r.of(t, i, len(p)), 0.01, "prompt %d", i)
	}

	// The same with a precision policy and a model that is written for float32.
	c.Compute = dtypes.Float32
	o := small(c)
	o.Precision, o.DType = precision.MixedBFloat16, dtypes.InvalidDType
	r = newRecorder(t, s, c.Logits, 6, c)
	half, err := generate.New(s, seeded(), r.logits, o)
	require.NoError(t, err)
	defer half.Close()
	_, err = half.Generate(t.Context(), prompts, generate.Sampling{MaxTokens: made})
	require.NoError(t, err)
	x, err := half.Compiled(t.Context(), generate.Sampling{})
	require.NoError(t, err)
	for _, a := range x.Decode.Module.Arguments {
		if a.Name == "generate/keys" {
			assert.Equal(t, dtypes.BFloat16, a.DType)
		}
	}
	for i, p := range prompts {
		equalLogits(t, want[i][:1], r.of(t, i, len(p)), 0.01, "prompt %d", i)
	}
}
