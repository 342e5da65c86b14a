// Package precision configures the dtypes in which a model stores its variables, computes, and
// accumulates sums. It provides Keras's mixed precision for GoMLX's layers, which need no changes.
//
// # Policies
//
// A [Policy] is a value. For example, [MixedBFloat16] stores the variables in float32 and computes
// in bfloat16, which halves the memory of activations and is the native dtype of TPU matrix units:
//
//	step, err := train.New(strat, store, opt, loss, train.Options{Precision: precision.MixedBFloat16})
//
// The loss function receives the floats of its batch in bfloat16, and its layers read the variables
// in bfloat16. The store, the devices, checkpoints and the optimizer keep the variables in float32,
// so a store can be trained alternately with and without a policy. Gradients pass through the cast
// and are in float32.
//
// In a step without training, such as an evaluation, call [Policy.Forward] around the model:
//
//	strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
//		return precision.MixedBFloat16.Forward(rc.Graph(), in, func(in []*graph.Node) []*graph.Node {
//			return []*graph.Node{model(rc.Scope(), in[0])}
//		})
//	}, options)
//
// # Models with integer inputs
//
// A layer computes in the dtype of its input, and a policy does not cast integers. A model that
// computes its first floats from integers, for example with an embedding or a conversion of pixels,
// therefore computes in float32. Use [Compute] to convert these floats:
//
//	x := layers.Embedding(scope.In("embedding"), tokens, dtypes.Float32, vocabulary, width)
//	x = precision.Compute(x) // bfloat16 from here on
//
// If no operation computes in the policy's Compute dtype, tracing fails. The error contains the
// first product in another dtype and its source line:
//
//	no operation of the model computes in BFloat16; the first one in another dtype is the Float32
//	product DotGeneral[(Float32)[8, 64] (Float32)[64, 256]] at model.go:31
//
// # Computing parts of a model in float32
//
// The variables of a layer have the dtype of its input, so a layer with a float32 input computes in
// float32. Use [Output] before a layer, or [FullPrecision] around it:
//
//	logits := layers.Dense(scope.In("logits"), precision.Output(h), true, classes)
//	h = precision.FullPrecision(h, func(h *graph.Node) *graph.Node {
//		return norm.BatchNorm(scope.In("norm"), h, -1).Done()
//	})
//
// Apply [Output] to logits and float labels to compute the loss in float32. For an argument that
// the policy has cast, Output returns the original argument. GoMLX's layer normalizations compute
// in float32 in any case. State that a layer updates, such as the averages of a batch
// normalization, is updated in float32 from values that the layer computed in half precision; with
// Full, all of it is computed in float32. These functions have no effect in a step without a
// policy.
//
// GoMLX adds the terms of all regularizers in the dtype of the first term. In a model with layers
// in two dtypes, use regularizers only in layers of one dtype.
//
// # Dtypes of sums
//
//   - Hardware accumulates the products of dot products and convolutions in float32. Partial results
//     of a product on several logical devices are summed in Policy.Partial, by default Compute.
//   - Reductions, windows, cumulative sums, softmaxes, batch normalizations and the gradients of
//     gathers accumulate in Policy.Accumulate, by default Float32.
//   - Gradients are summed over the replicas in Policy.Reduce, by default float32. BFloat16 halves the
//     communication. Gradients of stacked variables that are sharded over the replicas and gathered
//     layer by layer in a loop are summed in Compute. The mean of the loss is computed in Output.
//
// # Float16
//
// The range of float16 ends at 65,504, and values below 6e-5 lose precision, which affects
// gradients. Therefore [MixedFloat16] has a [LossScale]: a training step multiplies its loss by the
// scale before it computes the gradients, and divides the gradients by the scale.
// [DynamicLossScale] adapts the scale: a step whose gradients overflow is skipped and halves the
// scale, and 2,000 steps without overflow double it. The state of the scale is in the store, and
// train.Step.LossScale returns it. See also train.Options.NonFinite. A Float16 policy without a
// loss scale is allowed. The forward pass is not scaled, so if activations overflow, the loss is
// not finite with any scale. Bfloat16 has the range of float32 and needs no scale.
//
// # Implementation and cost
//
// A layer requests a variable in the dtype of its input, which the store would reject because the
// variable is in float32. Therefore the forward part is traced twice. The first trace records the
// requested dtypes. Before the second trace, the graph node of each variable that is requested in
// Compute is replaced by a cast, which the layers then read. The forward code of a step runs twice
// for each signature. This doubles the tracing time, which is much shorter than the compile time.
package precision
