// Package spmd assembles the program of a distributed step: it converts a traced GoMLX graph with
// annotations and collectives to one StableHLO module for the Shardy partitioner.
//
// # One program, one mesh
//
// For R replicas of P logical devices, the module has one replica and R*P partitions over the mesh
// ["replica"=R, "logical"=P]. Its main function has global tensors as arguments and results. It
// contains one sdy.manual_computation that is manual over "replica": inside it, shapes are per
// replica, and the partitioner splits a replica over its logical devices. The body calls the step
// function. With [Options].LogicalAxes the mesh has these axes instead of "logical", as in
// ["replica"=R, "model"=2, "sequence"=2]. If an annotation splits a dimension by a
// number that is not the size of an axis, the axis is split into factors ("logical.0", ...), see
// [github.com/tpustrategy/tpustrategy/logical.FactorAxes].
//
//	t := spmd.NewTrace(spmd.Options{Replicas: 4, LogicalDevices: 2})
//	g := graph.NewGraph(t, "step")
//	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 8, 16))
//	y := spmd.AllReduce(logical.Split(x, 1, 2), spmd.Sum)
//	g.Compile(y)
//	m, err := t.Module(g, spmd.Signature{...})   // m.Text is the input of the compiler
//
// # Arguments and results
//
// A [Tensor] of the signature is either mirrored or PerReplica. A mirrored tensor is the same on
// each replica, and the global tensor equals the replica's tensor. A PerReplica tensor differs
// between replicas: the global tensor is the concatenation of the replicas' tensors along dimension
// 0, or a vector of R numbers for scalars. The tensor's annotation splits it over the logical
// devices. In both cases the shard of a device has the bytes of the replica's tensor, split by the
// annotation only.
//
// A tensor with a [ReplicaShard] is sharded over the replicas: the global tensor is the
// concatenation of the shards along a dimension, with padding at its end. The parameter of the step
// is the shard, or the unsharded tensor, which the module then gathers. [GatherShards],
// [ReduceScatterShard], [SliceShard] and [ParameterShard] convert between shards and unsharded
// tensors. With several logical devices each device processes its own shard of the split, inside a
// computation that is manual over the logical axes too.
//
// # Regions
//
// Ops between BeginRegion and EndRegion, see
// [github.com/tpustrategy/tpustrategy/logical.OnDevice], run on one logical device. They are moved
// into a function, which is called inside a nested manual computation, in a stablehlo.case on
// partition_id. An all-reduce of bits sends the results to all logical devices, for which the other
// devices pass zeros (exchange.go). A value that only other regions of the same device read stays
// on the device. Such a region in a loop or a block is a pass of package region (device.go).
//
// The ops that compute a tensor assigned to one device by
// [github.com/tpustrategy/tpustrategy/logical.Assign] become a region too, with the ops of the
// gradient. The ops of one device between two transfers are one region.
//
// # From a trace to text
//
// A [Trace] adds each op of the graph as a statement of package
// [github.com/tpustrategy/tpustrategy/lowering/ir]. Annotations and collectives are placeholder
// statements. [Trace.Module] then assembles the module in passes over the statements, and writes
// the text once, at the end:
//
//   - replace the forward and backward passes of loops, blocks and manual regions (outline.go);
//   - select the statements that compute assigned tensors, and order them into regions (assign.go);
//   - find the values that each region reads and returns, and move each region into a function
//     (flow.go, region.go);
//   - replace placeholders by ops, when all splits are known (placeholder.go, collective.go);
//   - build main, which calls the step function (main.go);
//   - replicate the dimensions that the partitioner must not split
//     ([github.com/tpustrategy/tpustrategy/lowering.ReplicateUnsplittableDims]).
//
// To add an op, add a placeholder type with a method that returns the statement of the op.
//
// # Determinism
//
// The text depends only on the graph and the options. All processes of a job, which lower the step
// separately, create the same bytes.
//
// # Source
//
// StableHLO and Shardy specifications: openxla.org/stablehlo/spec,
// openxla.org/shardy/sharding_representation.
package spmd
