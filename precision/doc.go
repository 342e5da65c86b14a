// Package precision says in which dtypes a model keeps its variables, computes, and adds up: its
// policies are Keras's mixed precision for GoMLX's layers, which need no change.
//
// # A policy
//
// A [Policy] is a value. [MixedBFloat16] keeps the variables in float32, which are the masters, and
// computes in bfloat16, which halves the memory of activations and is what a TPU multiplies:
//
//	step, err := train.New(strat, store, opt, loss, train.Options{Precision: precision.MixedBFloat16})
//
// The loss function gets the floats of its batch in bfloat16, and its layers see the store's
// variables in bfloat16. The store, the devices, checkpoints, the optimizer and its state have them
// in float32, as without a policy: a store may be trained with a policy and go on without one.
// Gradients arrive in float32, through the cast.
//
// In a plain step, such as an evaluation, call [Policy.Forward] around the model:
//
//	strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
//		return precision.MixedBFloat16.Forward(rc.Graph(), in, func(in []*graph.Node) []*graph.Node {
//			return []*graph.Node{model(rc.Scope(), in[0])}
//		})
//	}, options)
//
// # Models over integers
//
// A layer computes in the dtype of its input, and a policy does not cast integers. So a model whose
// first floats are made of integers, such as by an embedding or by a conversion of pixels, computes in
// float32. Convert these floats with [Compute]:
//
//	x := layers.Embedding(scope.In("embedding"), tokens, dtypes.Float32, vocabulary, width)
//	x = precision.Compute(x) // bfloat16 from here on
//
// A policy whose Compute no operation computes in is an error of the step's trace. The error names the
// first product in another dtype and its line:
//
//	no operation of the model computes in BFloat16; the first one in another dtype is the Float32
//	product DotGeneral[(Float32)[8, 64] (Float32)[64, 256]] at model.go:31
//
// # What stays in float32
//
// A layer has its variables in the dtype of its input. Give a layer a float32 input and it computes
// in float32 as a whole, with [Full] around it or with [Output] before it:
//
//	logits := layers.Dense(scope.In("logits"), precision.Output(h), true, classes)
//	h = precision.Full(h, func(h *graph.Node) *graph.Node {
//		return norm.BatchNorm(scope.In("norm"), h, -1).Done()
//	})
//
// Write [Output] around logits and float labels, and the loss is computed in float32; an argument
// comes back from it as it was before the policy cast it. GoMLX's layer normalisations compute in
// float32 by themselves. What a layer keeps from step to step, such as the averages of a batch
// normalisation, is computed in float32 from what the layer computed in half precision; with Full
// all of it is. These functions do nothing in a step without a policy, so a model may always have
// them.
//
// GoMLX adds up the terms of all regularizers in the dtype of the first: in a model with layers in
// two dtypes, let regularizers stand in layers of one of them.
//
// # What is added up in what
//
//   - The terms of a product (dot products, convolutions) are added up in float32 by the hardware.
//     Where the partitioner has parts of one product on several logical devices, these are added up
//     in Policy.Partial: Compute, unless it says Float32.
//   - Reductions, windows, running sums, softmaxes, batch normalisations and the gradients of
//     gathers add up in Policy.Accumulate: Float32, unless it says Compute.
//   - Gradients are added up over the replicas in Policy.Reduce: float32, unless it says BFloat16,
//     which sends half the bytes. Those of stacked variables that replicas share out and a loop
//     gathers layer by layer are added up where the layer is, in Compute. The mean of the loss is
//     in Output.
//
// # Float16
//
// Float16 has no numbers beyond 65,504 and few below 6e-5, where gradients often are. So
// [MixedFloat16] has a [LossScale]: a training step multiplies its loss before the gradients are
// taken and divides them by as much. [DynamicLossScale] finds the scale: a step whose gradients
// overflow is not taken and halves it, and 2,000 steps without an overflow double it. Its state is
// in the store: train.Step.LossScale reads it and says how it goes with train.Options.NonFinite. A
// policy in Float16 without a loss scale is taken as it is. The forward pass itself is not scaled:
// where activations overflow, the loss is not finite at any scale; bfloat16 has the range of
// float32 and needs no scale.
//
// # How it works, and what it costs
//
// A layer asks the store for a variable in the dtype of its input, and the store would refuse: the
// variable is float32. So a forward part is traced twice. The first trace shows what the code asks
// for. Before the second, each variable that is asked for in Compute has a cast of it as its node
// in the graph, which is what the layers get. The code of a step's forward part runs twice for each
// signature, which takes as long as tracing does; compiling takes longer by far.
package precision
