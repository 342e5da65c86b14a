// Package train takes training steps: it turns a model's loss and one of GoMLX's optimizers into
// one compiled program that runs on all replicas of a strategy.
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
// The function builds the loss of one replica from the replica's part of the batch. Gradients are
// averaged over the replicas by an all-reduce each, and every replica makes the same update, so
// that the result is that of one device on the whole batch.
//
//   - [Step.Run] takes a step on a batch in host memory, or on values that are on the devices.
//   - [Step.RunSteps] takes many steps in one launch, as a loop on the devices.
//   - [Step.Bind] fixes the batch, for a loop that allocates nothing.
//   - [Step.Close] frees what the step has on the devices. The variables stay, for other steps.
//   - [Step.Compiled] compiles the step without running it, also for a slice that is not at hand;
//     package strategy/stepfile saves what it returns.
//   - logical.Share, a rule of strategy.Options.Variables, shares out variables, gradients and the
//     optimizer's state among the replicas.
//   - [Options].NonFinite skips or stops at steps whose numbers are not finite.
//   - [Options].Precision computes in bfloat16 or float16 with variables in float32, by a policy of
//     package precision; [Step.LossScale] reads its loss scale.
//   - [Options].Accumulate takes the batch as microbatches in a loop, which needs the memory of
//     one.
//   - [Weighted] makes a loss of a sum and a weight, such as the number of tokens that count.
//   - [Options].Freeze trains some of the variables, such as the last layers of a loaded model.
//   - [Options].Average keeps moving averages of the variables. [Averaged] computes with them,
//     [Step.SwapAverages] exports them.
//   - [Options].ClipNorm clips the gradients by their global norm.
//   - [Options].LearningRate follows a schedule of package strategy/train/schedule on the devices.
//   - [Options].Metrics, Norms and UpdateNorm accumulate numbers on the devices; [Step.Metrics]
//     reads them. [Report] hands over what the loss function computes, such as an accuracy.
//   - [NewEvaluation] evaluates the same metrics over data that was held out.
//
// # Microbatches
//
// With [Options].Accumulate set to n, each replica's rows are cut along dimension 0 of the
// arguments into n microbatches, of consecutive rows. The loss function builds the loss of one
// microbatch: its arguments have the rows of one. Arguments without rows, mirrored values, are the
// same for each. The text and the time to compile it do not grow with n.
//
//   - Losses, gradients and regularization terms count by rows, so that the step is that of the
//     whole batch. As over replicas, the loss must be a mean over rows, or a loss of [Weighted]. A mean
//     over something else, such as over tokens that are not masked, would become a mean of the
//     microbatches' means.
//   - Rows that do not divide by n are padded, and so are those of uneven batches; the padding is
//     left out as [Step.Run] says. If there are fewer rows than n, there are fewer microbatches.
//   - What the loss function writes, it writes for each microbatch: a variable that counts calls
//     counts n, random numbers are drawn for each, on each replica its own.
//   - A batch normalisation normalises each microbatch with the mean and the variance of the
//     microbatch's own rows on the replica, and moves its averages n times a step, as n steps over
//     batches of that size would. So a model with one is that of smaller batches, not of the whole
//     batch: two replicas of two microbatches train as four replicas of one. Choose a momentum for
//     averages that move n times as often, or normalise by layers.
//   - Manual regions (package manual, and moe, ring and pipeline on it) run for each microbatch. A
//     layer of experts has its capacity, and its balance term, for the tokens of one.
//   - Half precision is added up in the policy's Accumulate, float32 as a rule.
//   - With logical.ShardParameters layers of package loop gather their slices for each microbatch
//     and scatter their gradients, so that no device has a whole stack. All other gradients cross
//     the replicas once, after the loop.
//   - The code of the loss function runs again until it is known which variables it writes.
//
// # Fine-tuning
//
// Load the weights into the store before the first step (strategy/checkpoint, lm/pretrained),
// and freeze what shall stay: [Options].Freeze. The frozen layers run forward only. The backward
// pass ends at the first variable that is trained, and the optimizer keeps state for trained ones
// alone.
//
// The variables are on the devices while a step trains them: strategy.Variables.Pull copies them
// into the store, and package strategy/checkpoint saves them. Datasets come through package
// strategy/feed.
package train
