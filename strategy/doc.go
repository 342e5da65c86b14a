// Package strategy runs step functions synchronously on R replicas, each of P logical devices. It
// is a Go implementation of TensorFlow's TPUStrategy.
//
// # A step
//
// A step function is written once, for one replica, with GoMLX's ops, layers and optimizers. A
// [TPUStrategy] compiles it once into one program for all devices and runs the program. The
// replicas communicate through collectives inside the program, such as the sum of their gradients.
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
// Package strategy/train creates training steps. Use a [Function] for any other step.
//
// A function of package strategy/nest accepts and returns nests of tensors, variables and other
// values, such as a map of named tensors together with a mode. Values that are not tensors are part
// of the signature: the step is compiled once for each such value.
//
// # Values
//
// The arguments and results of a step are stored on the devices. A [PerReplica] has a separate
// value on each replica; a [Mirrored] has the same value on all replicas. Host tensors are copied
// to the devices when they are passed to a step, and values are copied back when they are read.
// Runs are asynchronous: [Function.Run] returns when the work is enqueued, and reading a result
// waits for the work. In loops, close results that are no longer used; the garbage collector also
// releases their memory, but later. The loss of a training step needs no Close.
//
// # Input
//
// A batch in host memory can be passed to a step directly. For a dataset, describe it with package
// input and distribute it with feed.Distribute (package strategy/feed). feed.Iterate copies its
// batches to the devices. A feed.Feed copies the next batch while the previous step runs, and pads
// the last batch.
//
// # Variables
//
// The variables of a GoMLX model.Store stay on the devices between steps, sharded by
// [Options.Variables]. A step that changes a variable reuses the variable's memory for the new
// value. The values in the store are the initial values; [Variables.Pull] copies the current values
// to the store. Package strategy/checkpoint saves and restores variables.
//
// # Random numbers
//
// Each replica of a step draws its own random numbers, for dropout masks for example; the logical
// devices of a replica draw the same numbers. The state of a store's generator is nevertheless one
// mirrored variable. A step that draws random numbers advances this state by one draw on all
// replicas, however many numbers it uses. This draw and the replica's number form the key of the
// replica's Philox stream; different keys have different streams. Layers of a loop, microbatches
// and steps in one launch continue the replica's stream, and a block that is recomputed draws the
// same numbers again. With one replica the numbers equal those of GoMLX.
// [FunctionOptions].MirroredRandomNumbers, and the option of the same name in package
// strategy/train, make all replicas draw the same numbers.
//
// A checkpoint contains the state, so a resumed run draws the same numbers as an uninterrupted run.
// A checkpoint can be resumed on a mesh with another number of replicas or logical devices. As long
// as both meshes have several replicas, the replicas that exist in both draw the same numbers. A
// mesh with one replica draws directly from the state, and therefore draws other numbers.
//
// # Contexts
//
// Go has no thread-local stack of strategies. Inside a step function there is a [ReplicaContext];
// outside there is the strategy itself. The types thus prevent most calls in the wrong place. A
// context.Context detects the others: the contexts of [eager.Extended.Scope],
// [eager.ReplicaContext.Context] and merge calls identify the code that runs. A call in the wrong
// place returns [ErrContext]; a call that mixes strategies returns [ErrOtherStrategy].
//
// # Variables of the strategy
//
// [TPUStrategy.NewVariable] creates a variable with TensorFlow's synchronization and aggregation
// modes. Writes of the replicas to a mirrored variable are combined. A sync-on-read variable, such
// as a metric, has a separate component for each replica; the components are combined when the
// variable is read. Steps read and write variables with the methods of [ReplicaContext], other code
// with the methods of [Variable].
//
// # Sharded state
//
// Rules with logical.MatchState in [Options].Variables shard the optimizer state, the gradients and the
// trained variables over the replicas. Each device then stores one shard, and steps gather the
// shards that they read. [logical.StateSharding] documents the storage and the communication of
// each mode. Values and checkpoints contain the unsharded variables.
//
// # Replica code in Go
//
// Package strategy/eager runs Go functions once for each replica, without a compiled step around
// them. It implements TensorFlow's StrategyExtended and its eager replica contexts.
//
// # Several processes
//
// On a slice of several hosts, each process has a strategy over all devices and addresses the
// devices of its own host. It feeds and reads the replicas in [TPUStrategy.LocalReplicas]; every
// process can read a value that is the same on all replicas. All processes must make the same calls
// in the same order. They compare each program before they compile it, and a difference is reported
// as a [*MismatchError] that names the processes that differ. [TPUStrategy.Barrier],
// [TPUStrategy.GatherBytes] and [TPUStrategy.BroadcastBytes] exchange small host values through the
// devices.
//
// # Without the devices
//
// [NewAheadOfTime] creates a strategy for a described slice whose devices are not available. Steps
// are traced, lowered and compiled with the TPU compiler, and package report reports the memory and
// the time that they need. Package strategy/stepfile saves compiled steps in files, and
// [Options].Compiler accepts a cache of compiled programs (package pjrt/cache).
//
// # Concurrency
//
// A strategy is safe for concurrent use. All devices must execute multi-device programs in the same
// order, so launches are serialized; the launched work overlaps.
//
// # Exit on a signal
//
// Pass a context that is canceled by a signal to the calls that run, compile or wait, and close the
// system and the strategy:
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	err := train(ctx) // opens the system and the strategy, and closes them by defer
//	if ctx.Err() != nil {
//		os.Exit(130) // 143 for SIGTERM
//	}
//
// A compilation cannot be stopped, but the exit does not wait for it. A call returns as soon as its
// context is canceled, [TPUStrategy.Close] abandons the compilations in progress, and the system's
// Close waits at most one second for the plugin. A context bounds [TPUStrategy.Shutdown] and the
// system's Shutdown. examples/quickstart is a complete program.
package strategy
