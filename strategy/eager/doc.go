// Package eager runs the code of replicas as Go functions. It implements TensorFlow's
// StrategyExtended (tf.distribute.StrategyExtended) and the operations of replica contexts outside
// compiled functions. A training program only needs package strategy; this package is for programs
// that are ported from TensorFlow.
//
// [Of] returns the extended API of a strategy. [Extended.CallForEachReplica] calls a Go function
// once for each replica, and [Extended.Update] calls a function for each component of a variable.
// The replicas run one at a time, in replica order, until they make a collective call: a reduction
// or a gather, a write of a variable, or [ReplicaContext.MergeCall]. A collective call waits until
// all replicas have made it, and then runs one small program on all devices. The program is
// compiled once and cached.
//
//	e := eager.Of(strat)
//	out, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
//		square, err := rc.Mul(args[0], args[0])
//		if err != nil {
//			return nil, err
//		}
//		return rc.AllReduce(strategy.Sum, square)
//	}, perReplicaValue)
//
// # Values
//
// Tensor arguments and results of replica code are [Component]s. A component is one replica's
// tensor of a distributed value. [Extended.Regroup] combines the replicas' results into distributed
// values, and [Extended.SelectReplica] is its inverse.
//
// # Contexts
//
// A context.Context identifies the running code: replica code or cross-replica code. A call in the
// wrong context returns a [strategy.ErrContext]. In a merge call of a compiled step, calls with
// [MergeContext.Context] add operations to the step instead of running immediately; the method
// lists these calls.
//
// # Concurrency and cost
//
// An [Extended] has no state and is safe for concurrent use. A [ReplicaContext] and an
// [UpdateContext] are valid only inside their function. A collective call costs the launch of a
// program, tens of microseconds for each device. Training steps should be compiled functions.
package eager
