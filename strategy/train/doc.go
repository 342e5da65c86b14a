// Package train compiles training steps. A training step is one compiled program that computes a
// model's loss and gradients and applies one of GoMLX's optimizers, on all replicas of a strategy.
//
//	step, err := train.New(strat, store, optimizer.Adam().Done(),
//		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
//			y := layers.Dense(rc.Scope("model"), in[0], true, 1)
//			return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
//		}, train.Options{})
//	for batch := range batches {
//		loss, err := step.Run(ctx, batch.X, batch.Y) // the global batch
//		...
//	}
//
// The loss function builds the loss of one replica from that replica's rows of the batch. Each
// gradient is averaged over the replicas by an all-reduce, and every replica applies the same
// update. The result is therefore the same as on one device with the whole batch, up to rounding.
//
//   - [Step.Run] runs one step on a batch in host memory or on values that are already on the
//     devices.
//   - [Step.RunSteps] runs many steps in one launch, as a loop on the devices.
//   - [Step.Bind] fixes the batch, for a loop without allocations.
//   - [Step.Close] frees the step's device memory. The variables stay on the devices for other
//     steps.
//   - [Step.Compiled] compiles the step without running it, also for a TPU slice that is not
//     attached. Package strategy/stepfile saves the compiled step.
//   - logical.MatchState, a rule of strategy.Options.Variables, shards variables, gradients and
//     optimizer state over the replicas.
//   - [Options].NonFinite skips steps whose loss or gradients are not finite, or stops at the
//     first.
//   - [Options].Precision computes in bfloat16 or float16 with variables in float32, by a policy of
//     package precision. [Step.LossScale] reads the dynamic loss scale.
//   - [Options].Accumulate processes the batch as microbatches in a loop, which needs the
//     activation memory of one microbatch.
//   - [Weighted] defines a loss by a sum and a weight, such as the number of unmasked tokens.
//   - [Options].Freeze trains only some of the variables, such as the last layers of a loaded
//     model.
//   - [Options].Average keeps moving averages of the variables. [Averaged] computes with the
//     averages, and [Step.SwapAverages] exports them.
//   - [Options].ClipNorm clips the gradients by their global norm.
//   - [Options].LearningRate computes a schedule of package strategy/train/schedule on the devices.
//   - [Options].Metrics, Norms and UpdateNorm accumulate metrics on the devices. [Step.Metrics]
//     reads them. [Report] adds values that the loss function computes, such as an accuracy.
//   - [NewEvaluation] evaluates the same metrics on held-out data.
//
// # Microbatches
//
// If [Options].Accumulate is n, each replica's rows are split along dimension 0 of the arguments
// into n microbatches of consecutive rows. The loss function builds the loss of one microbatch, and
// its arguments have the rows of one microbatch. Mirrored arguments, which have no rows, are the
// same for each microbatch. Program size and compile time do not grow with n.
//
//   - Losses, gradients and regularization terms are weighted by rows, so the step equals a step on
//     the whole batch. As with replicas, the loss must be a mean over rows or a loss of [Weighted].
//     A mean over another quantity, such as unmasked tokens, would become a mean of the
//     microbatches' means.
//   - If n does not divide the rows, or the batch is uneven, rows are padded. The padding does not
//     count, as described at [Step.Run]. If there are fewer rows than n, there are fewer
//     microbatches.
//   - Variables that the loss function writes are written once for each microbatch: a call counter
//     increases by n. Random numbers are drawn for each microbatch, and each replica draws its own.
//   - Batch normalization normalizes each microbatch with the mean and variance of that
//     microbatch's rows on the replica, and updates its moving averages n times per step, as n
//     steps over smaller batches would. A model with batch normalization therefore trains as with
//     smaller batches: two replicas with two microbatches train like four replicas with one. Choose
//     a momentum for n updates per step, or use layer normalization.
//   - Manual regions (package manual, and moe, ring and pipeline, which use it) run once for each
//     microbatch. The capacity and the balance term of an expert layer are computed for the tokens
//     of one microbatch.
//   - Half-precision sums are accumulated in the policy's Accumulate dtype, by default float32.
//   - With logical.ShardParameters, layers of package loop gather their slices and scatter their
//     gradients for each microbatch, so that no device has a whole stack. All other gradients are
//     reduced over the replicas once, after the loop.
//   - The loss function is traced repeatedly until the set of variables that it writes is known.
//
// # Fine-tuning
//
// Load the weights into the store before the first step (strategy/checkpoint, lm/pretrained), and
// freeze the variables that must not change with [Options].Freeze. Frozen layers run forward only.
// The backward pass stops at the first trained variable, and the optimizer keeps state only for
// trained variables.
//
// Variables stay on the devices while a step trains them. strategy.Variables.Pull copies them into
// the store, and package strategy/checkpoint saves them. Package strategy/feed reads datasets.
package train
