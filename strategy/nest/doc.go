// Package nest runs steps whose arguments and results are nests: slices, maps and structs of
// tensors, variables and other values, such as a map of named tensors with a mode. It corresponds
// to TensorFlow's Strategy.run with nested structures.
//
//	f := nest.New(strat, func(rc *strategy.ReplicaContext, args []any) any {
//		batch := args[0].(map[string]any)
//		return map[string]any{"error": graph.Sub(batch["x"].(*graph.Node), batch["y"].(*graph.Node))}
//	}, strategy.FunctionOptions{SplitBatch: true})
//	out, err := f.Run(ctx, map[string]any{"x": x, "y": y})
//
// A leaf that is not a tensor is static: the step receives the Go value and is compiled for it. See
// [Function].
package nest
