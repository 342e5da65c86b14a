// Package strategy runs step functions synchronously on R replicas, each of P logical devices:
// TensorFlow's TPUStrategy, in Go.
//
// # A step
//
// A step function is written once, for one replica, with GoMLX's ops, layers and optimizers. A
// [TPUStrategy] compiles it once into one program for all devices and runs it; the replicas meet in
// collectives inside the program, such as the sum of their gradients.
//
//	strat, err := strategy.New(sys, strategy.Options{Replicas: 4, LogicalDevices: 2})
//	step, err := train.New(strat, store, optimizer.Adam().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
//		logits := layers.Dense(rc.Scope("hidden"), in[0], true, 10)
//		return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{in[1]}, []*graph.Node{logits}))
//	}, train.Options{})
//	for batch := range batches {
//		loss, err := step.Run(ctx, batch.X, batch.Y)
//		...
//	}
//
// Package strategy/train makes training steps; a [Function] is any other step.
//
// A function of package strategy/nest takes and returns nests of tensors, variables and other values, such
// as a batch by names and a mode. A value that is no tensor is part of the signature: the step is
// compiled for each such value.
//
// # Values
//
// The arguments and results of a step live on the devices: a [PerReplica] has its own value on each
// replica, a [Mirrored] the same value. Host tensors are copied to the devices where a step takes
// them, and values are copied back when they are read. Runs are asynchronous: [Function.Run]
// returns when the work is under way, and reading a result waits for it. In loops close results
// that are no longer wanted: the garbage collector releases their memory, too, but later. The loss
// of a training step needs no Close.
//
// # Input
//
// A batch in host memory is an argument of a step. For more, describe a dataset with package input
// and divide it with feed.Distribute (package strategy/feed). feed.Iterate puts its batches on the
// devices; a feed.Feed does so while the step before runs, and pads the last batch.
//
// # Variables
//
// The variables of a GoMLX model.Store live on the devices between steps, sharded by
// [Options.Variables], and each step that changes one gives its memory to the new value. The
// store's own copies are the initial values; [Variables.Pull] brings the current ones back. Package
// strategy/checkpoint saves and restores them.
//
// # Random numbers
//
// Each replica of a step draws random numbers of its own, such as dropout masks; the logical devices
// of a replica draw the same. The state of a store's generator is one mirrored variable all the
// same. A step that draws takes one draw from it on all replicas, however many numbers they need,
// and this draw with the replica's number is the key of the replica's stream (Philox: other keys,
// other streams). Layers of a loop, microbatches and steps in one launch draw on in the replica's
// stream, and a block that is computed again draws the same numbers again. With one replica the
// numbers are those of GoMLX. [FunctionOptions].MirroredRandomNumbers, and the option of that name of
// package strategy/train, make all replicas draw the same numbers.
//
// A checkpoint has the state, so that a resumed run draws the numbers that it would have drawn. On
// another number of replicas it goes on from the same state, on any number of logical devices: the
// replicas that both meshes have draw the same numbers in the next steps, as long as there are
// several. One replica draws from the state itself, and so other numbers.
//
// # Contexts
//
// Go has no thread-local stack of strategies. Inside a step function there is a [ReplicaContext],
// outside there is the strategy itself, so that the types keep most calls in their place. A
// context.Context keeps the others: the contexts of [eager.Extended.Scope],
// [eager.ReplicaContext.Context] and merge calls say whose code runs. A call in the wrong place
// returns [ErrContext], a call that mixes strategies [ErrOtherStrategy].
//
// # Variables of the strategy
//
// [TPUStrategy.NewVariable] makes a variable with TensorFlow's synchronization and aggregation. The
// replicas' writes of a mirrored variable are combined. A sync-on-read variable, such as a metric,
// is written by each replica for itself and combined when it is read. Steps read and write
// variables by the methods of the [ReplicaContext], other code by those of the [Variable].
//
// # State in parts
//
// By rules of logical.Share in [Options].Variables the replicas share out the optimizer's state, the
// gradients and the trained variables: a device holds a part of each, and steps bring together what
// they read. [logical.StateSharding] says what each way stores and sends. Values and checkpoints are
// those of the whole variables.
//
// # Replica code in Go
//
// Package strategy/eager runs Go functions once for each replica, without a compiled step around
// them: TensorFlow's StrategyExtended and its eager replica contexts.
//
// # Several processes
//
// On a slice of several hosts each process has a strategy over all devices and addresses the
// devices of its own host. It feeds and reads [TPUStrategy.LocalReplicas]; every process can read a
// value that is the same on all replicas. All processes make the same calls in the same order.
// Before they compile a program they compare it: a difference is a [*MismatchError] that names the
// processes that differ. [TPUStrategy.Barrier], [TPUStrategy.GatherBytes] and
// [TPUStrategy.BroadcastBytes] carry small host values over the devices.
//
// # Without the devices
//
// [NewAheadOfTime] makes a strategy for a slice that is described, not open. Steps are traced,
// lowered and compiled by the TPU's own compiler, and [CompiledStep.Report] says what memory and
// time they need. Package strategy/stepfile keeps compiled steps in files, and [Options].Compiler
// takes a cache of compiled programs (package pjrt/cache).
//
// # Concurrency
//
// A strategy is safe for concurrent use. Programs that span devices must reach all of them in one
// order, so launches take turns; the work they start overlaps.
//
// # Ending on a signal
//
// Pass a context that a signal ends to the calls that run, compile or wait, and close the system
// and the strategy:
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	err := train(ctx) // opens the system and the strategy, and closes them by defer
//	if ctx.Err() != nil {
//		os.Exit(130) // 143 for SIGTERM
//	}
//
// A compiler cannot be stopped, but nothing waits for it: a call whose context ends returns at
// once, [TPUStrategy.Close] gives up the compilations under way, and the system's Close waits a
// second at most for the plugin. Neither takes the time of a compilation. A context bounds
// [TPUStrategy.Shutdown] and the system's Shutdown. examples/quickstart is such a program.
package strategy
