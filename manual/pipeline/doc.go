// Package pipeline runs a model in stages, each on a logical device of its own, over microbatches:
// GPipe. A device holds the layers of its stage only, so that models whose layers do not fit on one
// device do on several, and it sends its activations to the next device alone.
//
//	// w is [layers, width, width], split over "stage" on the layers.
//	y := pipeline.Run("stage", x, []*graph.Node{w}, func(x *graph.Node, w []*graph.Node) *graph.Node {
//		return loop.Run(nil, layers/stages, ...) // the stage's own layers
//	}, pipeline.Options{Microbatches: 8})
//
// # Bubbles
//
// With n stages and m microbatches a pass takes m+n-1 rounds, in m of which a device does work that
// counts: it idles for (n-1)/(m+n-1) of the time. All devices run one program, so that a device
// computes in these rounds too; what it makes then is dropped and has no gradient. It computes on
// activations of microbatches, never on zeros, so that nothing becomes infinite that would not
// otherwise. Take many more microbatches than stages.
//
// # Cost
//
// A device sends one microbatch of activations in each round, forward and backward, and the results
// of the last stage go to all devices by one all-reduce. Options.Keep says what the backward pass
// keeps of the rounds.
package pipeline
