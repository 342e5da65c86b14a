package corpus

import (
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// zoo returns a language model that uses GoMLX's transformer package.
func zoo(c text, configure func(m *transformer.Model) *transformer.Model) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.vocabulary, c.rows, c.length)},
		Loss: func(rc *strategy.ReplicaContext, in []*Node) *Node {
			return tokenLoss(in[1], zooModel(rc, c, configure).Logits(in[0], transformer.CallOptions{}))
		},
	}
}

func zooModel(rc *strategy.ReplicaContext, c text,
	configure func(m *transformer.Model) *transformer.Model) *transformer.Model {
	m := transformer.New(rc.Scope("model")).WithVocabSize(c.vocabulary).WithEmbedDim(c.width).WithNumLayers(c.layers).
		WithNumHeads(c.heads).WithHeadDim(c.width / c.heads).WithMaxPosEmbed(c.length).WithDType(c.dtype).WithCausalMask(true)
	return configure(m)
}

// llama configures rotary positions, grouped-query attention, a gated feed-forward network and RMS
// normalization.
func llama(c text, keyHeads, hidden int) Program {
	return zoo(c, func(m *transformer.Model) *transformer.Model {
		return m.WithFFNDim(hidden).WithRoPE(10000).WithNumKVHeads(keyHeads).WithNormalization("rms").
			WithActivation(activation.TypeSwiGLU).WithBias(false)
	})
}

// gemma configures soft-capped attention scores and a sliding window.
func gemma(c text, keyHeads, hidden, window int) Program {
	return zoo(c, func(m *transformer.Model) *transformer.Model {
		return m.WithArchitecture(transformer.ArchitectureGemma3).WithFFNDim(hidden).WithRoPE(10000).WithNumKVHeads(keyHeads).
			WithNormalization("rms").WithRMSNormOffset(1).WithScoreSoftCap(50).WithFinalLogitSoftCap(30).WithSlidingWindow(
			window).
			WithScalingOfTokenEmbeddings(true).WithActivation(activation.TypeGeluApprox).WithBias(false)
	})
}

// scored returns the forward pass of a GoMLX transformer without padding.
func scored(c text, hidden int) Program {
	return Program{
		Inputs: []Input{ints(c.vocabulary, c.rows, c.length), ints(c.length, c.rows)},
		Forward: func(rc *strategy.ReplicaContext, in []*Node) []*Node {
			m := zooModel(rc, c, func(m *transformer.Model) *transformer.Model { return m.WithFFNDim(hidden) })
			return []*Node{m.Logits(in[0], transformer.CallOptions{SeqLen: in[1]})}
		},
	}
}
