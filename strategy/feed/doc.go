// Package feed copies the input of a strategy to the devices ahead of the step that uses it.
//
// # Feeding a step
//
// A [Feed] reads a distributed dataset in its own goroutine, copies each replica's part to its
// devices, and keeps a few batches ready. The copies overlap with the running step.
//
//	data, err := input.Distribute(dataset.Batch(256, true), input.Options{Replicas: strat.NumReplicasInSync()})
//	f, err := feed.New(ctx, strat, data, feed.Options{})
//	defer f.Close()
//	for batch, err := range f.All(ctx) {
//		if err != nil {
//			return err
//		}
//		loss, err := step.Run(ctx, batch.Args()...)
//		...
//	}
//
// [FromDataset], [FromTrain] and [FromSeq] also distribute the data over the strategy's replicas.
//
// # Ownership
//
// A batch belongs to the feed. It is valid until the next call of Next or Close, and within All
// until the next iteration. A step that was launched with the batch keeps the device memory until
// it has run.
//
// # Shapes
//
// A compiled step has one shape, and the last batch of a dataset is usually shorter.
// [Options].Partial selects how it is fed. [Exact] runs the short batch unchanged, in a separate
// program, if all replicas have the same number of rows. [Pad] pads every batch with zeros to one
// shape and adds a mask, so that the loss can exclude the padding. [Uneven] passes the batch to a
// training step, which ignores the padding and computes the mean over the rows of the whole batch.
// Batching with drop remainder avoids short batches.
//
// With a mask the replicas have different numbers of rows, so that the mean of the replicas' means
// is not the mean over the rows of the whole batch. train.Weighted computes that mean from a sum
// and a weight:
//
//	loss := train.Weighted(func(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node) {
//		losses := rowLosses(rc, in[0], in[1])
//		mask := graph.ConvertDType(in[2], losses.DType())
//		return graph.ReduceAllSum(graph.Mul(losses, mask)), graph.ReduceAllSum(mask)
//	})
//
// For a metric, add the masked sum and the number of rows to two sync-on-read variables with sum
// aggregation, and divide them after the pass.
//
// # Positions
//
// [Feed.State] returns the position of the input after the last batch that Next returned,
// regardless of how many batches are ready. Save it with a checkpoint, and training resumes with
// the next batch. With several processes, combine the positions of all processes with
// input.JoinStates and save the result. A run with a different number of processes and replicas can
// resume from it. See [Options.Start].
//
// # Several processes
//
// Each process feeds its own replicas, and all batches must have one shape: pad short batches, or
// batch with drop remainder. Data in memory ends on all processes at the same step. Files are
// distributed to the processes, so that they may end at different steps. The error for such data
// matches [ErrVote]: repeat the dataset without end, or set [Options.EndsTogether]. For the same
// reason an input for [New] must not vote on its end through the devices
// (input.Options.AnyProcess).
//
// # Errors
//
// An error of the input, of a copy or of the context is returned by Next after the batches before
// it, and by every later call. A panic of the input is returned as a [*errkind.PanicError].
// [Feed.Close] stops the goroutine and waits for it.
package feed
