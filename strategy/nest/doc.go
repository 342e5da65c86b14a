// Package nest runs steps that take and return nests: slices, maps and structs of tensors,
// variables and other values, such as a batch by names and a mode. It is TensorFlow's Strategy.run
// with nested structures, over a function of package strategy, whose arguments are tensors.
//
//	f := nest.New(strat, func(rc *strategy.ReplicaContext, args []any) any {
//		batch := args[0].(map[string]any)
//		return map[string]any{"error": graph.Sub(batch["x"].(*graph.Node), batch["y"].(*graph.Node))}
//	}, strategy.FunctionOptions{SplitBatch: true})
//	out, err := f.Run(ctx, map[string]any{"x": x, "y": y})
//
// What is no tensor the step sees as it was given, and is compiled for: see [Function].
package nest
