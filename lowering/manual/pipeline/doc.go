// Package pipeline implements pipeline parallelism: each logical device of an axis computes one
// stage of a model on microbatches, as in GPipe. A device stores only the layers of its stage, so a
// model can be larger than the memory of one device. Each device sends its activations only to the
// next device.
//
//	// w is [layers, width, width], split over "stage" on the layers.
//	y := pipeline.Run("stage", x, []*graph.Node{w}, func(x *graph.Node, w []*graph.Node) *graph.Node {
//		return loop.Run(nil, layers/stages, ...) // the layers of this stage
//	}, pipeline.Options{Microbatches: 8})
//
// # Bubbles
//
// With n stages and m microbatches, a pass has m+n-1 rounds, of which a device uses m. It is
// therefore idle for (n-1)/(m+n-1) of the time, so use many more microbatches than stages. Because
// all devices run the same program, a device also computes in unused rounds. It computes on
// activations of a microbatch and not on zeros, so that no additional infinities or NaNs occur. The
// results of unused rounds are discarded and have no gradient.
//
// # Cost
//
// In each round of the forward and backward pass, a device sends the activations of one microbatch.
// One all-reduce sends the results of the last stage to all devices. Options.Keep selects the
// values that are kept for the backward pass.
package pipeline
