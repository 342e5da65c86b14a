// Package contrib implements the DistributionStrategy of TensorFlow 1.9 (tf.contrib.distribute)
// with package strategy. Use it to port or understand programs that were written for towers.
//
// # Towers
//
// A tower is a replica in current TensorFlow. [DistributionStrategy.CallForEachTower] runs a Go
// function once for each tower, with positional arguments. The function receives a [TowerContext]
// with the tower's number. Its method MergeCall waits for all towers.
//
//	d := contrib.New(strat)
//	ctx, err := d.Scope(ctx)
//	merged, err := d.CallForEachTower(ctx, func(tc *contrib.TowerContext, args ...any) (any, error) {
//		return tc.Add(args[0], tc.TowerID())
//	}, int32(3))
//	list, err := d.Unwrap(ctx, merged)
//
// # What differs from package strategy
//
// Cross-tower methods require the context of [DistributionStrategy.Scope], of a merge call or of an
// update. Outside of a scope they return an error that matches [strategy.ErrContext], unlike
// package strategy.
//
// Values are maps from devices to values: [PerDevice] and [Mirrored].
//
// Reductions are named "sum" and "mean". They accept a PerDevice value and return a Mirrored value.
// Other names and other values are an AssertionError.
//
// A variable is either mirrored or tower-local (see [DistributionStrategy.TowerLocalVarScope]). A
// mirrored variable can only be written in [DistributionStrategy.Update], and a tower-local
// variable only in a tower's code. Restoring a tower-local variable with the reduce method "sum"
// multiplies the value by 1/towers.
//
// [DistributionStrategy.DistributeDataset] assigns one element of the dataset to each tower and
// drops an incomplete set of elements at the end. Package strategy splits batches instead.
//
// # Eager code only
//
// The package executes eagerly. In a compiled step ([strategy.TPUStrategy.Function], package
// strategy/train), its functions return an error that matches [strategy.ErrContext]; use
// [strategy.ReplicaContext] and [eager.MergeCall] there. In a tower's code, [Arithmetic.Call] runs
// a compiled function.
//
// # What has no meaning here
//
// There are no sessions and no variables on hosts. The corresponding calls return an error that
// matches [errors.ErrUnsupported] and names the alternative.
//
// The [Default] strategy, whose tower [TowerContextOf] returns outside of a scope, has no devices.
// Variables, arithmetic and datasets require a strategy with devices, which may have a single
// replica.
//
// # Concurrency
//
// A DistributionStrategy and its variables are safe for concurrent use. An [Iterator] is not safe
// for concurrent use, and a TowerContext is only valid in the function that receives it.
package contrib
