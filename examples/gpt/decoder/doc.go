// Package decoder is the model of command gpt: a decoder-only transformer in the form of Llama's,
// made of GoMLX's layers. Its layers are a loop of the program (package loop), its matrices are
// split over the logical devices of a replica ([Rules]), and its sizes are a value ([Config]), of
// which [Preset] has four.
//
//	c, err := decoder.Preset("tiny")
//	strat, err := strategy.New(sys, strategy.Options{Replicas: 4, LogicalDevices: 2, Variables: decoder.Rules()})
//	step := train.New(strat, store, optimizer.Adam().Done(), c.Loss)
//	loss, err := step.Run(ctx, windows) // int32 [c.Batch, c.Sequence+1]
package decoder
