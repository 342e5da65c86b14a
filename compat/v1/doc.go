// Package v1 is TensorFlow's compat.v1 face of a strategy, StrategyV1 and its
// StrategyExtendedV1, over package strategy, which does the work: for programs whose
// loops are in the terms of tf.compat.v1.distribute.
//
//	s := v1.New(strat, v1.Options{})
//	it, err := s.MakeDatasetIterator(ctx, ds)
//	losses, err := s.ExperimentalRun(ctx, step, it)
//	mean, err := s.Reduce(ctx, strategy.Mean, losses)
//
// # What it inherits
//
// [Strategy] has all methods of [strategy.TPUStrategy], and [Extended] has those of
// [eager.Extended], which include the methods that only the compat.v1 page documents:
// [eager.Extended.BroadcastTo], [eager.Extended.CallForEachReplica],
// [eager.Extended.ReadVar] and [eager.Extended.RunStepsOnIterator]. Extended adds the
// flags of TensorFlow 1's loops: [Extended.BetweenGraph], [Extended.ShouldInit],
// [Extended.ShouldCheckpoint] and [Extended.ShouldSaveSummary].
//
// # What differs
//
// The axis of [Strategy.Reduce] may be left out, and its value is any nest. Input comes
// from iterators that are initialized, again and again if need be: [InputIterator].
// Functions that make input are called once for each worker; another replication mode
// is an error of kind ValueError. [Strategy.Configure] fills in what is left of a session's
// configuration.
//
// TensorFlow has since deprecated everything that this package adds, and names the
// successors, which are in package strategy.
//
// # Concurrency
//
// A Strategy is safe for concurrent use, an InputIterator belongs to one goroutine.
package v1
