// Package contrib is the DistributionStrategy of TensorFlow 1.9, tf.contrib.distribute,
// over package strategy, which does the work: for programs that were written for
// towers, and for those who read them.
//
// # Towers
//
// A tower is what is called a replica today. [DistributionStrategy.CallForEachTower]
// runs a Go function once for each, with positional arguments; the [TowerContext]
// that it receives has the tower's number and MergeCall, which joins the towers.
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
// Cross-tower methods want the context of [DistributionStrategy.Scope], or one that a merge call or
// an update gives: outside every scope they are a [strategy.ErrContext], where package strategy
// accepts the call.
//
// Values are maps from device to value: [PerDevice] and [Mirrored].
//
// Reductions are named "sum" and "mean", want a PerDevice value and give a Mirrored
// one. Other names, and other values, are of kind AssertionError.
//
// A variable is mirrored, and then written in [DistributionStrategy.Update] only; or
// it is local to the towers, see [DistributionStrategy.TowerLocalVarScope], and then
// written in a tower's code only. All else is of kind RuntimeError. Restoring a
// tower-local variable that is summed multiplies by 1/towers.
//
// [DistributionStrategy.DistributeDataset] gives each tower an element of the dataset,
// where package strategy cuts a batch, and drops a last incomplete set of elements.
//
// # Eager code only
//
// The package runs eagerly: its functions act at once, and none of them can be called in a compiled
// step ([strategy.TPUStrategy.Function], package strategy/train), where they return an error that
// matches [strategy.ErrContext]. In a compiled step use [strategy.ReplicaContext] and
// [eager.MergeCall]; in a tower's code, [Arithmetic.Call] runs a compiled function.
//
// # What has no meaning here
//
// There are no sessions to configure and no variables on hosts; such calls match
// [errors.ErrUnsupported] and name what to do instead.
//
// The [Default] strategy, whose tower [TowerContextOf] gives outside every scope, has no devices:
// variables, arithmetic and datasets want a strategy that was opened, of one replica if need be.
//
// # Concurrency
//
// A DistributionStrategy and its variables are safe for concurrent use, an
// [Iterator] belongs to one goroutine, and a TowerContext to the function that
// receives it.
package contrib
