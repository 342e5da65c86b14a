// Package feed puts a strategy's input on the devices ahead of the step that uses it.
//
// # Feeding a step
//
// A [Feed] reads a distributed dataset in a goroutine of its own, copies each replica's part to its
// devices, and keeps a few steps ready. The copies overlap with the step under way.
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
// [FromDataset], [FromTrain] and [FromSeq] distribute their data over the strategy's replicas
// first.
//
// # Ownership
//
// A batch belongs to the feed: it is valid until the next call of Next or Close, and within All
// until the next iteration. A step that was launched with it keeps the device memory until it has
// run.
//
// # Shapes
//
// A compiled step has one shape, and data seldom ends with a full batch. What to do with the last,
// short one is the caller's choice: [Exact] runs it as it is, in a program of its own, where all
// replicas have the same number of rows; [Pad] fills every batch up with zeros to one shape and
// adds a mask to leave those rows out of the loss; [Uneven] hands it to a training step, which
// leaves the padding out and takes the mean over the rows of the whole batch. Batching with drop
// remainder avoids the choice.
//
// With the mask the replicas have different numbers of rows, so the mean of the replicas' means is not
// the mean over the rows of the whole batch. train.Weighted computes that mean from a sum and a weight:
//
//	loss := train.Weighted(func(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node) {
//		losses := rowLosses(rc, in[0], in[1])
//		mask := graph.ConvertDType(in[2], losses.DType())
//		return graph.ReduceAllSum(graph.Mul(losses, mask)), graph.ReduceAllSum(mask)
//	})
//
// For a metric, add the masked sum and the number of rows to two sync-on-read variables that
// aggregate sums, and divide when the pass is over.
//
// # Positions
//
// [Feed.State] returns the position of the input after the batch that was handed out last, however
// many batches are ready. Save it with a checkpoint, and training goes on with the very next batch.
// With several processes save the position of all, which input.JoinStates makes of theirs: any
// number of processes and replicas goes on from it. See [Options.From].
//
// # Many processes
//
// Each process feeds its own replicas, in one shape: pad short batches, or batch with drop
// remainder. Data in memory ends on all processes at the same step. Files are divided among the
// processes, so that it may end at different steps: the error for such data matches [ErrVote].
// Repeat such a dataset without end, or set [Options.EndTogether]. For the same reason an input
// given to [New] must not vote on its end through the devices (input.Options.AnyProcess).
//
// # Failure
//
// An error of the input, of a copy or of the context comes out of Next, once the batches before it
// were handed out, and again after that. So does a panic of the input, as a [*errkind.PanicError].
// [Feed.Close] ends the goroutine and returns when it has ended.
package feed
