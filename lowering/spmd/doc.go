// Package spmd assembles the one program that a distributed step is: a traced GoMLX graph, its
// annotations and its collectives, as a StableHLO module for the Shardy partitioner.
//
// # One program, one mesh
//
// For R replicas of P logical devices the module has one replica and R*P partitions over the mesh
// ["replica"=R, "logical"=P]. Its main function takes global tensors and holds one
// sdy.manual_computation that is manual over "replica": inside it, shapes are those of one replica,
// and the partitioner splits a replica over its logical devices. The body calls the step function.
// With [Options].LogicalAxes the mesh has these in the place of "logical", as in ["replica"=R,
// "model"=2, "sequence"=2]. When splits by numbers need it, an axis is cut into several
// ("logical.0", ...); see [github.com/tpustrategy/tpustrategy/logical.Cut].
//
//	t := spmd.NewTrace(spmd.Options{Replicas: 4, LogicalDevices: 2})
//	g := graph.NewGraph(t, "step")
//	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 8, 16))
//	y := spmd.AllReduce(logical.Split(x, 1, 2), spmd.Sum)
//	g.Compile(y)
//	m, err := t.Module(g, spmd.Signature{...})   // m.Text goes to the compiler
//
// # How arguments and results cross the border
//
// A [Tensor] of the signature is either mirrored or PerReplica. A mirrored tensor is the same on
// each replica, and the global tensor is the replica's. A PerReplica tensor differs: the global
// tensor is the replicas' tensors one after another along dimension 0, or a vector of R numbers for
// scalars. The tensor's annotation splits it over the logical devices. Either way the shard that a
// device holds has the bytes of the replica's tensor, cut by the annotation alone.
//
// A tensor with a [ReplicaShard] is in parts: each replica holds one, and the global tensor is
// the parts one after another along a dimension, with padding at its end. The step takes the part,
// or the whole tensor, which the module then gathers for it. [Whole], [ScatterPart], [OwnPart] and
// [PartOf] go from parts to the whole and back; on several logical devices each of these moves its
// own part of the split, inside a computation that is manual over the logical axes as well.
//
// # Regions
//
// Ops between BeginRegion and EndRegion (see [github.com/tpustrategy/tpustrategy/logical.On]) move
// into a function of their own, which runs inside a nested manual computation, under a stablehlo.case
// of partition_id. An all-reduce of bits sends a value that leaves the region to all logical devices:
// the others give zeros (bits.go). A value that only other regions of the same device read stays on
// the device. In a loop or a block such a region is a pass of package region (device.go).
//
// The ops that make a tensor that [github.com/tpustrategy/tpustrategy/logical.Assign] puts on one
// device become a region too, with the ops that only they need and with those of the gradient. The
// ops of one device between two values that cross the device's border are one region.
//
// # From a trace to text
//
// A [Trace] writes each op of the graph as a statement of package
// [github.com/tpustrategy/tpustrategy/lowering/ir]. An annotation or a collective is a statement
// with a mark, a value of this package that says what was asked for. [Trace.Module] then makes the
// module in passes over these values, and writes the text once, at the end:
//
//   - the statements of assigned tensors are found, and ordered into regions (assign.go);
//   - what crosses each region's border is found, and each region becomes a function (flow.go,
//     region.go);
//   - ops take the place of marks, now that all splits are known (mark.go, collective.go);
//   - the frame makes main of the step function (main.go);
//   - constraints gather the split dimensions that an operation walks over
//     ([github.com/tpustrategy/tpustrategy/lowering.GatherWalkedDims]).
//
// The frame is one function from values to a value: of the placed arguments and results and the
// step's function it makes the entry function, with or without the manual computation and the loop
// around the call. Neither the step nor the passes before know of it. Another frame, such as one
// whose main has shardings at its parameters and no manual computation, is another such function. A
// new op of the graph is a new mark: a type with a method that returns the op's statement, whose
// regions are values like all others.
//
// # Same text everywhere
//
// The text depends on the graph and the options only. Each process of a job lowers the step by
// itself and gets the same bytes.
//
// # Source
//
// StableHLO and Shardy specifications: openxla.org/stablehlo/spec,
// openxla.org/shardy/sharding_representation.
package spmd
