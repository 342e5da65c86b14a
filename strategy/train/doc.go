// Package train takes training steps: it turns a model's loss and one of GoMLX's optimizers into
// one compiled program that runs on all replicas of a strategy.
//
//	step := train.New(strat, store, optimizer.Adam().Done(),
//		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
//			y := layers.Dense(rc.Scope("model"), in[0], true, 1)
//			return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
//		})
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
//   - [Step.Compiled] compiles the step without running it, also for a slice that is not at hand;
//     package strategy/stepfile saves what it returns.
//   - strategy.Options.State shares out variables, gradients and the optimizer's state among the
//     replicas.
//   - [Options].NonFinite skips or stops at steps whose numbers are not finite.
//   - [Options].Precision computes in bfloat16 or float16 with variables in float32, by a policy of
//     package precision; [Step.LossScale] reads its loss scale.
//   - [Options].ClipNorm clips the gradients by their global norm.
//   - [Options].LearningRate follows a schedule of package strategy/train/schedule on the devices.
//   - [Options].Metrics, Norms and UpdateNorm accumulate numbers on the devices; [Step.Metrics] reads
//     them. [Report] hands over what the loss function computes, such as an accuracy.
//   - [NewEvaluation] evaluates the same metrics over data that was held out.
//
// The variables are on the devices while a step trains them: strategy.Variables.Pull copies them
// into the store, and package strategy/checkpoint saves them. Datasets come through package
// strategy/feed.
package train
