// Package v1 implements TensorFlow's StrategyV1 and StrategyExtendedV1 (tf.compat.v1.distribute)
// with package strategy. It is for programs with training loops in these terms.
//
//	s := v1.New(strat, v1.Options{})
//	it, err := s.MakeDatasetIterator(ctx, ds)
//	losses, err := s.ExperimentalRun(ctx, step, it)
//	mean, err := s.Reduce(ctx, strategy.Mean, losses)
//
// # Inherited methods
//
// [Strategy] has all methods of [strategy.TPUStrategy], and [Extended] has those of
// [eager.Extended], which include the methods that only the compat.v1 page documents:
// [eager.Extended.BroadcastTo], [eager.Extended.CallForEachReplica],
// [eager.Extended.ReadVar] and [eager.Extended.RunStepsOnIterator]. Extended adds the
// flags of TensorFlow 1's loops: [Extended.BetweenGraph], [Extended.ShouldInit],
// [Extended.ShouldCheckpoint] and [Extended.ShouldSaveSummary].
//
// # Differences
//
// The axis of [Strategy.Reduce] is optional, and its value may be any nest. Input is read with an
// [InputIterator], which can be initialized repeatedly. Input functions are called once for each
// worker; another replication mode is a ValueError. [Strategy.Configure] sets the fields of a
// session's configuration that still have a meaning.
//
// TensorFlow has deprecated everything that this package adds. The successors are in package
// strategy.
//
// # Concurrency
//
// A Strategy is safe for concurrent use. An InputIterator is not.
package v1
