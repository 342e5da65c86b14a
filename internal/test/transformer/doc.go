// Package transformer contains decoder-only language models of any size as training steps of a
// strategy. Tests and benchmarks use them to measure compile time, memory, collectives and step time,
// and to check that every mesh computes the same losses.
//
// [Peer] is the model of the benchmarks that compare this module with JAX: learned positions,
// pre-normalization, GELU and AdamW. The initial values and the tokens are pseudorandom functions of
// their index, so that single losses can be compared. [Billion] is the same model with 1.3 billion
// parameters. [Llama8B] and [Llama70B] have the shapes of Llama 3: RMS normalization, rotary
// positions, grouped-query attention and SwiGLU.
//
//	c := transformer.Peer()
//	strat, err := strategy.New(sys, c.Options(4, 2))
//	step := c.Step(strat, model.NewStore())
//	loss, err := step.Run(ctx, c.Tokens())
//
// The attention heads, the feed-forward network and the vocabulary are sharded over the logical
// devices.
package transformer
