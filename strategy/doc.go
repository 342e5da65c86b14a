// Package strategy runs step functions synchronously on R replicas, each of P logical devices. It
// is a Go implementation of TensorFlow's TPUStrategy.
//
// # Steps
//
// A step function is written once, for one replica, with GoMLX's ops, layers and optimizers. A
// [TPUStrategy] compiles it into one program for all devices. The replicas communicate through
// collectives in the program, for example to sum their gradients.
//
//	strat, err := strategy.New(sys, strategy.Options{Replicas: 4, LogicalDevices: 2})
//	step, err := train.New(strat, store, optimizer.Adam().Done(),
//		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
//			logits, labels := layers.Dense(rc.Scope("hidden"), in[0], true, 10), in[1:2]
//			return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits(labels, []*graph.Node{logits}))
//		}, train.Options{})
//	for batch := range batches {
//		loss, err := step.Run(ctx, batch.X, batch.Y)
//		...
//	}
//
// Package strategy/train creates training steps. Use a [Function] for any other step, or a function
// of package strategy/nest for a step with nests, such as a map of named tensors. A value in a nest
// that is not a tensor is part of the signature: the step is compiled once for each such value.
//
// # Values and input
//
// Arguments and results are stored on the devices. A [PerReplica] has a separate value on each
// replica; a [Mirrored] has the same value on all replicas. A step copies host tensors to the
// devices, and reading a value copies it back. [Function.Run] returns when the work is enqueued;
// reading a result waits for the work. In loops, close results that are no longer used, because the
// garbage collector releases device memory late. The loss of a training step needs no Close.
// Package input describes datasets, and package strategy/feed copies their batches to the devices
// while the previous step runs.
//
// # Variables
//
// The variables of a GoMLX model.Store stay on the devices between steps, sharded by
// [Options].Variables. The values in the store are the initial values; [Variables.Pull] copies the
// current values to the store. A step reuses the memory of a variable that it changes. Package
// strategy/checkpoint saves and restores variables.
//
// [TPUStrategy.NewVariable] creates a variable with TensorFlow's synchronization and aggregation
// modes. Writes to a mirrored variable are combined over the replicas. A sync-on-read variable,
// such as a metric, has a component for each replica, and a read combines the components.
//
// Rules with logical.MatchState in [Options].Variables shard optimizer state, gradients and trained
// variables over the replicas. Each device stores one shard, and steps gather the shards that they
// read. [logical.StateSharding] documents the modes. Values and checkpoints contain unsharded
// variables.
//
// # Random numbers
//
// Each replica draws its own random numbers, for dropout masks for example; its logical devices
// draw the same numbers. The state of a store's generator is one mirrored variable. A step that
// draws random numbers advances the state by one draw, however many numbers it uses. This draw and
// the replica's number form the key of the replica's Philox stream. The layers of a loop,
// microbatches, and steps in one launch continue the stream; a recomputed block draws the same
// numbers again. [FunctionOptions].MirroredRandomNumbers makes all replicas draw the same numbers.
//
// A checkpoint contains the state, so a resumed run draws the same numbers as an uninterrupted run.
// A run may resume on another mesh. If both meshes have several replicas, the replicas that exist
// in both draw the same numbers. A mesh with one replica draws directly from the state, as GoMLX
// does, and therefore draws other numbers.
//
// # Contexts
//
// A [ReplicaContext] is the strategy inside a step function. A context.Context identifies other
// code: the contexts of [eager.Extended.Scope], of [eager.ReplicaContext.Context] and of merge
// calls. A call in the wrong place returns [ErrContext]. Package strategy/eager runs Go functions
// for each replica without a compiled step, and implements TensorFlow's StrategyExtended.
//
// # Several processes
//
// On a slice of several hosts, each process has a strategy over all devices. It feeds and reads the
// replicas in [TPUStrategy.LocalReplicas]; every process can read a value that is the same on all
// replicas. All processes must make the same calls in the same order. They compare each program
// before they compile it; a difference is a [*MismatchError]. [TPUStrategy.GatherBytes] and similar
// methods exchange small host values through the devices.
//
// # Compiling without devices
//
// [NewAheadOfTime] creates a strategy for a described slice. It compiles steps with the TPU
// compiler, and package report reports their memory and time. Package strategy/stepfile saves
// compiled steps in files. [Options].Compiler accepts a cache of compiled programs (package
// pjrt/cache).
//
// # Concurrency and exit
//
// A strategy is safe for concurrent use. Launches are serialized, because all devices must execute
// the programs in the same order; the launched work overlaps. A second Close of an object does
// nothing.
//
// To exit on a signal, pass a context of signal.NotifyContext to the calls that run, compile or
// wait, and close the strategy and the system; examples/quickstart is a complete program. A
// compilation cannot be stopped, but a call returns as soon as its context is canceled.
// [TPUStrategy.Close] abandons the compilations in progress, and the system's Close waits at most
// one second for the plugin.
package strategy
