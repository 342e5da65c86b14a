// Package module assembles the one program that a distributed step is: a traced
// GoMLX graph, its annotations and its collectives, as a StableHLO module for the
// Shardy partitioner.
//
// # One program, one mesh
//
// For R replicas of P logical devices the module has one replica and R*P
// partitions over the mesh ["replica"=R, "logical"=P]. Its main function takes
// global tensors and holds one sdy.manual_computation that is manual over
// "replica": inside it, shapes are those of one replica, and the partitioner
// splits a replica over its logical devices. The body calls the step function.
// When splits need it, the logical axis is cut into several ("logical.0", ...);
// see [github.com/tpustrategy/tpustrategy/logical.Factorize].
//
//	t := module.NewTrace(module.Options{Replicas: 4, LogicalDevices: 2})
//	g := graph.NewGraph(t, "step")
//	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 8, 16))
//	y := module.AllReduce(logical.Split(x, 1, 2), module.Sum)
//	g.Compile(y)
//	m, err := t.Module(g, module.Signature{...})   // m.Text goes to the compiler
//
// # How arguments and results cross the border
//
// A [Tensor] of the signature is either Mirrored (the same on each replica, the
// global tensor is the replica's) or PerReplica (each replica has its own; the
// global tensor is the replicas' tensors one after another along dimension 0, or
// a vector of R numbers for scalars). Its annotation splits it over the logical
// devices. Either way the shard that a device holds has the bytes of the
// replica's tensor, cut by the annotation alone.
//
// # Regions
//
// Ops between BeginRegion and EndRegion (see [github.com/tpustrategy/tpustrategy/logical.On]) are moved
// into a function of their own, which runs inside a nested manual computation,
// under a stablehlo.if on partition_id. A value that leaves the region is sent to all
// logical devices by an all-reduce, to which the others add zeros; values that only
// other regions of the same device read stay where they are.
//
// What makes a tensor that [github.com/tpustrategy/tpustrategy/logical.Assign] puts on one device becomes a
// region too, with what only it needs and with what its gradient does; the ops of one
// device between two values that cross its border are one region.
//
// # Same text everywhere
//
// The text depends on the graph and the options only. Each host lowers the step
// by itself and gets the same bytes.
//
// # Source
//
// StableHLO and Shardy specifications: openxla.org/stablehlo/spec,
// openxla.org/shardy/sharding_representation.
package module
