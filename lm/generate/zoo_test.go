package generate_test

import (
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention/kvcache"
	zoo "github.com/gomlx/gomlx/ml/zoo/transformer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// ofZoo is a transformer of GoMLX's zoo as a model of this package. slots is the length of its
// cache: Options.MaxLength plus Options.PromptTokensPerLaunch.
func ofZoo(configure func(m *zoo.Model), slots int) generate.ModelFunc {
	return func(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) *graph.Node {
		m := zoo.New(rc.Scope("model"))
		configure(m)
		if cache == nil {
			// Without a mask GoMLX ignores the sliding window for complete sequences.
			all := graph.GreaterOrEqual(tokens, graph.ZerosLike(tokens))
			return m.Logits(tokens, zoo.CallOptions{AttentionMask: all})
		}
		m.KVCache.WithSinkPositions(0).WithMaxSeqLenPerLayerType([]int{slots, slots})
		m.PopulateKVCacheConfigs()
		nodes := zoo.KVCacheNodes{}
		for i, scope := range m.KVCache.OrderedScopes {
			nodes[scope+kvcache.KeySuffix], nodes[scope+kvcache.ValueSuffix] = cache.Layer(i)
		}
		logits, nodes := m.Forward(tokens, zoo.CallOptions{PositionIds: cache.Slot(), AttentionMask: cache.ValidSlots(),
			Cache: nodes})
		for i, scope := range m.KVCache.OrderedScopes {
			keys, values := m.KVCache.Get(nodes, scope)
			cache.SetLayer(i, keys, values)
		}
		return logits
	}
}

// TestTransformersOfTheZoo generates with GoMLX's own models and their caches.
func TestTransformersOfTheZoo(t *testing.T) {
	sys := plugintest.System(t, devices)
	for name, configure := range map[string]func(m *zoo.Model){
		"llama": func(m *zoo.Model) {
			m.WithVocabSize(40).WithEmbedDim(16).WithNumLayers(2).WithNumHeads(4).WithHeadDim(4).WithFFNDim(32).WithNumKVHeads(
				2).
				WithRoPE(10000).WithNormalization(layers.NormalizationRMSNorm).WithBias(false).WithActivation(activation.TypeSwish)
		},
		"gemma3": func(m *zoo.Model) {
			m.WithArchitecture(zoo.ArchitectureGemma3).WithVocabSize(40).WithEmbedDim(16).WithNumLayers(2).WithNumHeads(
				4).WithHeadDim(4).
				WithFFNDim(32).WithNumKVHeads(2).WithRoPE(10000).WithNormalization(layers.NormalizationRMSNorm).WithBias(false).
				WithScalingOfTokenEmbeddings(true).WithFinalNormalization(layers.NormalizationRMSNorm).
				WithLayerTypes([]zoo.LayerType{zoo.LocalLayer, zoo.GlobalLayer}).WithSlidingWindow(6)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := generate.Options{Layers: 2, KeyHeads: 2, HeadSize: 4, Vocabulary: 40, MaxLength: 20, PromptTokensPerLaunch: 4,
				TokensPerLaunch: 4}
			m := ofZoo(configure, o.MaxLength+o.PromptTokensPerLaunch)
			want, _ := whole(t, strategytest.On(t, sys, strategy.Options{Replicas: 1}), seeded(), m, prompts)
			g, err := generate.New(strategytest.On(t, sys, strategy.Options{Replicas: 2, LogicalDevices: 1}), seeded(), m, o)
			require.NoError(t, err)
			defer g.Close()
			got, err := g.Generate(t.Context(), prompts, generate.Sampling{MaxTokens: made})
			require.NoError(t, err)
			assert.Equal(t, want, tokens(got))
		})
	}
}
