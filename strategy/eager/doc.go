// Package eager runs the code of replicas as Go functions: TensorFlow's StrategyExtended
// (tf.distribute.StrategyExtended) and what its replica contexts do outside compiled functions. A
// program that trains needs package strategy alone; a program that is ported from TensorFlow finds
// the rest of the contract here.
//
// [Of] gives a strategy's extended contract. [Extended.CallForEachReplica] calls a Go function once
// for each replica, one at a time, in replica order, until the replicas join: in a collective, in a
// write of a variable, or in [ReplicaContext.MergeCall], whose function runs once, for all of them.
// [Extended.Update] calls a function for each component of a variable. Each joined call is one
// small program on all devices, which is compiled once and kept.
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
// The arguments and results of a replica's code are tensors as [Component]s: a component is the
// replica's part of a distributed value. [Extended.Regroup] makes distributed values of what the
// replicas return, and [Extended.SelectReplica] takes them apart.
//
// # Contexts
//
// A context.Context says whose code runs. A call in the wrong place returns a
// [strategy.ErrContext]. In a merge call of a compiled step, with
// [MergeContext.Context], [Extended.ReduceTo], [Extended.BatchReduceTo],
// [Extended.BroadcastTo], [Extended.Update] and [Extended.UpdateNonSlot] build the step's graph
// instead of acting at once.
//
// # Concurrency and cost
//
// An [Extended] holds nothing, and is safe for concurrent use. A [ReplicaContext] and an
// [UpdateContext] are of use in their function only. A joined call costs the launch of a program,
// tens of microseconds for each device; a training step belongs in a compiled function.
package eager
