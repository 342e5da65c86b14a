package generate_test

import (
	"context"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// TestWhatCannotBeGeneratedIsRefused passes invalid prompts, samplings and options. None of them is
// executed on the devices.
func TestWhatCannotBeGeneratedIsRefused(t *testing.T) {
	count := &compilations{}
	c := gpt()
	options := c.Options(1, 1)
	options.Compiler = count
	s := strategytest.On(t, plugintest.System(t, devices), options)
	g, err := generate.New(s, seeded(), c.Logits, small(c))
	require.NoError(t, err)
	one := [][]int32{{1, 2, 3}}
	for name, x := range map[string]struct {
		prompts  [][]int32
		sampling generate.Sampling
		want     string
	}{
		"no prompts":      {nil, generate.Sampling{MaxTokens: 1}, "there are no prompts"},
		"an empty prompt": {[][]int32{{1}, {}}, generate.Sampling{MaxTokens: 1}, "prompt 1 is empty"},
		"an unknown token": {[][]int32{{1}, {2, 40}}, generate.Sampling{MaxTokens: 1},
			"token 1 of prompt 1 is 40, but the vocabulary has 40 tokens"},
		"a negative token": {[][]int32{{-1}}, generate.Sampling{MaxTokens: 1}, "token 0 of prompt 0 is -1"},
		"a prompt that is long": {[][]int32{make([]int32, 20)}, generate.Sampling{MaxTokens: 1},
			"prompt 0 has 20 tokens and 1 more are requested, but the cache has room for 20"},
		"more than the cache has": {one, generate.Sampling{MaxTokens: 18},
			"prompt 0 has 3 tokens and 18 more are requested, but the cache has room for 20"},
		"no tokens to make":      {one, generate.Sampling{}, "set the maximum number of tokens"},
		"a negative temperature": {one, generate.Sampling{MaxTokens: 1, Temperature: -1}, "Sampling.Temperature"},
		"a temperature of NaN": {one, generate.Sampling{MaxTokens: 1, Temperature: math.NaN()},
			"Sampling.Temperature"},
		"a negative top k": {one, generate.Sampling{MaxTokens: 1, Temperature: 1, TopK: -1},
			"Sampling.TopK"},
		"a top k of too many": {one, generate.Sampling{MaxTokens: 1, Temperature: 1, TopK: 41},
			"it is 41, but the vocabulary has 40 tokens"},
		"a top p over 1": {one, generate.Sampling{MaxTokens: 1, Temperature: 1, TopP: 1.5},
			"Sampling.TopP"},
		"a top k of the likeliest": {one, generate.Sampling{MaxTokens: 1, TopK: 5},
			"set it, to 1 for the model's own probabilities"},
		"a stop token of another vocabulary": {one, generate.Sampling{MaxTokens: 1, Stop: []int32{40}}, "Sampling.Stop"},
	} {
		_, err := g.Generate(t.Context(), x.prompts, x.sampling)
		assert.ErrorContains(t, err, x.want, name)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
	}
	assert.Zero(t, count.n.Load(), "nothing was compiled")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.Generate(canceled, one, generate.Sampling{MaxTokens: 1})
	assert.ErrorIs(t, err, context.Canceled)
	require.NoError(t, g.Close())
	_, err = g.Generate(t.Context(), one, generate.Sampling{MaxTokens: 1})
	assert.ErrorIs(t, err, strategy.ErrClosed)
	require.NoError(t, g.Close(), "a second time")

	for name, change := range map[string]func(o *generate.Options){
		"Options.Layers":                func(o *generate.Options) { o.Layers = 0 },
		"Options.KeyHeads":              func(o *generate.Options) { o.KeyHeads = -1 },
		"Options.HeadSize":              func(o *generate.Options) { o.HeadSize = 0 },
		"Options.Vocabulary":            func(o *generate.Options) { o.Vocabulary = 1 },
		"Options.MaxLength":             func(o *generate.Options) { o.MaxLength = 1 },
		"Options.BatchSize":             func(o *generate.Options) { o.BatchSize = -1 },
		"Options.TokensPerLaunch":       func(o *generate.Options) { o.TokensPerLaunch = -1 },
		"Options.PromptTokensPerLaunch": func(o *generate.Options) { o.PromptTokensPerLaunch = -1 },
		"Options.DType":                 func(o *generate.Options) { o.DType = dtypes.Int32 },
		"Options.Precision":             func(o *generate.Options) { o.Precision = precision.Policy{Compute: dtypes.Int8} },
	} {
		o := small(c)
		change(&o)
		_, err := generate.New(s, seeded(), c.Logits, o)
		assert.ErrorContains(t, err, name)
	}
	for want, err := range map[string]error{
		"the strategy is nil": strategytest.Err(generate.New(nil, seeded(), c.Logits, small(c))),
		"the store is nil":    strategytest.Err(generate.New(s, nil, c.Logits, small(c))),
		"the model is nil":    strategytest.Err(generate.New(s, seeded(), nil, small(c))),
	} {
		assert.ErrorContains(t, err, want)
	}
}

// TestModelsThatCannotGenerateAreRefused uses models that use the cache incorrectly.
func TestModelsThatCannotGenerateAreRefused(t *testing.T) {
	c := gpt()
	s := strategytest.On(t, plugintest.System(t, devices), c.Options(1, 1))
	embedded := func(rc *strategy.ReplicaContext, tokens *graph.Node) *graph.Node {
		return layers.Embedding(rc.Scope("tokens"), graph.InsertAxes(tokens, -1), dtypes.Float32, c.Vocabulary, c.Vocabulary)
	}
	heads := func(x *graph.Node, heads int) *graph.Node {
		return graph.Reshape(x, x.Shape().Dim(0), x.Shape().Dim(1), heads, -1)
	}
	looped := c
	looped.Loop = true
	nans := func(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) *graph.Node {
		x := embedded(rc, tokens)
		return graph.Log(graph.Sub(graph.Neg(graph.Square(x)), graph.OnesLike(c.Logits(rc, tokens, cache))))
	}
	for name, x := range map[string]struct {
		model  generate.ModelFunc
		change func(o *generate.Options)
		want   string
	}{
		"ignores the cache": {func(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) *graph.Node {
			return embedded(rc, tokens)
		}, nil,
			"it does not use the cache"},
		"has other heads": {func(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) *graph.Node {
			h := heads(embedded(rc, tokens), 4)
			return graph.Reshape(cache.Attend(h, h, h), tokens.Shape().Dim(0), tokens.Shape().Dim(1), -1)
		}, nil, "where the cache has room for"},
		"has heads that do not divide": {func(rc *strategy.ReplicaContext, tokens *graph.Node,
			cache *generate.Cache) *graph.Node {
			x := embedded(rc, tokens)
			return cache.Attend(heads(x, 4), heads(x, 8), heads(x, 8))
		}, nil, "is a multiple of the number of key heads"},
		"gives logits of another vocabulary": {func(rc *strategy.ReplicaContext, tokens *graph.Node,
			cache *generate.Cache) *graph.Node {
			return graph.Slice(c.Logits(rc, tokens, cache), graph.AxisRange(), graph.AxisRange(), graph.AxisRange(0, 39))
		}, nil, "not floats of [1 4 40] (rows, tokens, vocabulary)"},
		"gives nothing": {func(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) *graph.Node {
			c.Logits(rc, tokens, cache)
			return nil
		}, nil, "it returns nothing"},
		"has fewer layers": {c.Logits, func(o *generate.Options) { o.Layers = 3 },
			"2 layers used the cache, which has room for 3"},
		"has more layers, in a loop": {looped.Logits, func(o *generate.Options) { o.Layers = 1 },
			"2 layers used the cache, which has room for 1"},
		"gives no numbers": {nans, nil, "logits are NaN"},
	} {
		o := small(c)
		if x.change != nil {
			x.change(&o)
		}
		g, err := generate.New(s, seeded(), x.model, o)
		require.NoError(t, err)
		_, err = g.Generate(t.Context(), [][]int32{{1, 2, 3}}, generate.Sampling{MaxTokens: 2})
		assert.ErrorContains(t, err, x.want, name)
		require.NoError(t, g.Close())
	}

	t.Run("another store", func(t *testing.T) {
		store := seeded()
		store.RootScope().In("mine").VariableWithValue("weights", float32(1))
		g, err := generate.New(s, store, c.Logits, small(c))
		require.NoError(t, err)
		defer g.Close()
		_, err = g.Generate(t.Context(), [][]int32{{1, 2, 3}}, generate.Sampling{MaxTokens: 2})
		assert.ErrorContains(t, err, `it creates the variable "/emb", but the store already has`)
	})
	t.Run("other shapes", func(t *testing.T) {
		store := model.NewStore()
		store.RootScope().VariableWithValue("emb", []float32{1})
		g, err := generate.New(s, store, c.Logits, small(c))
		require.NoError(t, err)
		defer g.Close()
		_, err = g.Generate(t.Context(), [][]int32{{1, 2, 3}}, generate.Sampling{MaxTokens: 2})
		var trace *strategy.TraceError
		assert.ErrorAs(t, err, &trace)
	})
}

// TestStepsDoNotGenerate calls operations that need devices while a step is traced.
func TestStepsDoNotGenerate(t *testing.T) {
	c := gpt()
	s := strategytest.On(t, plugintest.System(t, devices), c.Options(1, 1))
	g, err := generate.New(s, seeded(), c.Logits, small(c))
	require.NoError(t, err)
	defer g.Close()
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		_, generated := g.Generate(rc.Context(), prompts, generate.Sampling{MaxTokens: 1})
		_, compiled := g.Compiled(rc.Context(), generate.Sampling{})
		for _, err := range []error{generated, compiled} {
			assert.ErrorIs(t, err, strategy.ErrContext)
		}
		return in
	}, strategy.FunctionOptions{})
	_, err = f.Run(t.Context(), float32(1))
	require.NoError(t, err)
}
