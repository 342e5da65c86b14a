// Package strategy runs step functions synchronously on R replicas, each of P
// logical devices: TensorFlow's TPUStrategy, in Go.
//
// # A step
//
// A step function is written once, for one replica, with GoMLX's ops, layers and
// optimizers. A [TPUStrategy] compiles it once into one program for all devices
// and runs it; the replicas meet in collectives inside the program, such as the
// sum of their gradients.
//
//	strat, err := strategy.New(sys, strategy.Options{Replicas: 4, LogicalDevices: 2})
//	step := train.New(strat, store, optimizer.Adam().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
//		logits := layers.Dense(rc.Scope("hidden"), in[0], true, 10)
//		return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{in[1]}, []*graph.Node{logits}))
//	})
//	for batch := range batches {
//		loss, err := step.Run(ctx, batch.X, batch.Y)
//		...
//	}
//
// Package strategy/train makes training steps; a [Function] is any other step.
//
// A step that takes and gives nests of tensors, variables and other values, such as a
// batch by names and a mode, is a [TPUStrategy.NestFunction]. What is no tensor is
// part of the signature: the step is compiled for each such value.
//
// # Values
//
// What a step takes and gives lives on the devices: a [PerReplica] has its own
// value on each replica, a [Mirrored] the same one. Host tensors are copied to the
// devices where a step takes them, and values are copied back when they are read.
// Runs are asynchronous: [Function.Run] returns when the work is under way, and
// reading a result waits for it. Close results that are no longer wanted in loops:
// the garbage collector releases them too, but later. The loss of a training step
// needs no Close.
//
// # Input
//
// A batch in host memory is an argument of a step. Datasets are described with package
// input, divided by feed.Distribute (package strategy/feed) and put on the devices by
// feed.Iterate, or by a feed.Feed while the step before runs, which also pads the last batch.
//
// # Variables
//
// The variables of a GoMLX model.Store live on the devices between steps, sharded
// by [Options.Variables], and each step that changes one gives its memory to the
// new value. The store's own copies are the initial values; [Variables.Pull]
// brings the current ones back. Package strategy/checkpoint saves and restores them.
//
// # Random numbers
//
// The state of a store's random generator is one mirrored variable, so the replicas
// of a step draw the same numbers, each on its own part of the batch.
// [ReplicaContext.OwnRandomNumbers] gives each its own: other dropout masks.
//
// # Contexts
//
// Go has no thread-local stack of strategies. Inside a step function there is a
// [ReplicaContext], outside there is the strategy itself: the types keep apart
// what belongs where. What types cannot tell, a context.Context does: the one that
// [TPUStrategy.Scope], [eager.ReplicaContext.Context] and a merge call give carries whose
// code runs, and calls in the wrong place are a [*ContextError], those that mix
// strategies a [*StrategyError].
//
// # Variables of the strategy
//
// [TPUStrategy.NewVariable] makes a variable with TensorFlow's synchronization and
// aggregation: mirrored ones, whose writes by the replicas are combined, and
// sync-on-read ones, such as metrics, that each replica writes for itself and that
// are combined when they are read. Steps read and write them by the methods of the
// [ReplicaContext]; outside they have methods of their own.
//
// # Replica code in Go
//
// What is not one compiled step, such as a Go function that runs once for each replica, is
// in package strategy/eager: TensorFlow's StrategyExtended and its eager replica contexts.
//
// # Several processes
//
// On a slice of several hosts each process has a strategy over all devices and
// addresses its own. It feeds and reads [TPUStrategy.LocalReplicas]; what is the
// same on all replicas can be read everywhere. All processes make the same calls in
// the same order. Before a program is compiled they compare it, so that a
// difference is a [*MismatchError] that names who differs. [TPUStrategy.Barrier],
// [TPUStrategy.GatherBytes] and [TPUStrategy.BroadcastBytes] carry small host values
// over the devices.
//
// # Without the devices
//
// [NewAheadOfTime] makes a strategy for a slice that is described, not open: steps
// are traced, lowered and compiled by the TPU's own compiler, and Compiled.Report
// says what they need. Package strategy/stepfile keeps compiled steps in files, and
// [Options].Compiler takes a cache of compiled programs (package pjrt/cache).
//
// # Concurrency
//
// A strategy is safe for concurrent use. Programs that span devices must reach all
// of them in one order, so launches take turns; the work they start overlaps.
//
// # Ending on a signal
//
// Give what runs, compiles or waits a context that a signal ends, and close what was
// opened:
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	err := train(ctx) // opens the system and the strategy, and closes them by defer
//	if ctx.Err() != nil {
//		os.Exit(130) // 143 for SIGTERM
//	}
//
// A compiler cannot be stopped, but is not waited for: a call whose context ends returns
// at once, [TPUStrategy.Close] gives up the compilations under way, and the system's
// Close waits a second at most for what goes on in the plugin. Neither takes the time of
// a compilation. [TPUStrategy.Shutdown] and the system's Shutdown are bounded by a
// context. examples/quickstart is such a program.
package strategy
