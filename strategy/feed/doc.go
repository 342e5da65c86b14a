// Package feed copies the input of a strategy to the devices ahead of the step that uses it.
//
// # Feeding a step
//
// A [Feed] reads a distributed dataset in its own goroutine, copies the rows of each replica to its
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
// [Options].Partial selects the treatment of the short batch:
//
//   - [Exact] runs the batch unchanged, in a separate program, if all replicas have the same number of rows.
//   - [Pad] pads every batch with zeros to one shape and adds a mask, so that the loss can exclude the padding.
//   - [Uneven] passes the batch to a training step, which ignores the padding and computes the mean
//     over the rows of all replicas.
//
// Batching with drop remainder avoids short batches.
//
// With a mask the replicas have different numbers of rows, so the mean of the replicas' means is
// not the mean over all rows. train.Weighted computes that mean from a sum and a weight:
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
// regardless of how many batches are ready. A checkpoint that contains it resumes with the next
// batch; see [Options].Start. With several processes, save the result of input.JoinStates for the
// positions of all processes.
//
// # Several processes
//
// Each process feeds its own replicas, and all batches must have one shape: pad short batches, or
// batch with drop remainder. Data in memory ends on all processes at the same step. Files are
// distributed to the processes, so they may end at different steps, which is an error that matches
// [ErrVote]: repeat the dataset without end, or set [Options].EndsTogether. For the same reason the
// input of [New] must not set input.Options.AnyProcess.
//
// # Errors
//
// Next returns an error of the input, of a copy or of the context after the batches before it, and
// so does every later call. A panic of the input is returned as a [*errkind.PanicError].
package feed
