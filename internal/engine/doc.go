// Package engine runs programs on R x P devices and places tensors on them.
//
// A [Layout] is a value that describes the shard of a tensor on each device. A [Runtime] compiles
// programs ([Runtime.Build]); concurrent calls with the same program share one compilation. It copies
// shards of tensors to its devices ([Runtime.PutTensor], [Runtime.LoadTensors]) and from them ([Runtime.GetTensor],
// [Runtime.CopyShardsToHost]), orders the launches of programs ([Runtime].Launch), and exchanges messages
// between the processes of a job ([Runtime.Gather]). A runtime for a slice that is not attached
// ([NewDescribedRuntime]) only compiles and has no shards.
//
// The package does not depend on variables, contexts or graphs. Packages strategy and gomlx use it.
package engine
