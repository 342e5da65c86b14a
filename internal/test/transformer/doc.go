// Package transformer is decoders over tokens at any size, as training steps of a strategy: what
// depth, memory, collectives and time are measured on, and what every mesh must give the same
// losses of.
//
// [Peer] is the model that the benchmarks have in common with a program of JAX: learned positions,
// normalisation before attention and before a pair of dense layers with GELU, and AdamW. Its first
// values are a hash of their place, and so are its tokens, so that losses can be compared number by
// number. [Billion] is the same at 1.3 billion parameters. [Llama8B] and [Llama70B] have the shapes
// of Llama 3: RMS normalisation, rotary positions, grouped queries and SwiGLU.
//
//	c := transformer.Peer()
//	strat, err := strategy.New(sys, c.Options(4, 2))
//	step := c.Step(strat, model.NewStore())
//	loss, err := step.Run(ctx, c.Tokens())
//
// Attention heads, the dense pair and the vocabulary are split over the logical devices.
package transformer
