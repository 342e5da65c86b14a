// Package manual runs a function on each logical device of a replica, on the device's shards, with
// explicit collectives between the devices. It corresponds to JAX's shard_map and TensorFlow's
// manual sharding ops.
//
// With package logical, the partitioner derives the computation and communication of each device
// from annotations. Use a manual region if you need to control the communication: for example, to
// dispatch tokens to experts, to pass activations from one pipeline stage to the next, or to pass
// keys around a ring of devices.
//
//	// w is [experts, width, hidden], x is [tokens, width].
//	y := manual.Region([]string{"expert"},
//		[]manual.Arg{manual.In(x, "expert"), manual.In(w, "expert")},
//		[]sharding.Spec{sharding.P("expert")},
//		func(in []*graph.Node) []*graph.Node {
//			x, w := in[0], in[1] // the device's tokens and experts
//			...
//			x = manual.AllToAll(x, 0, 1, "expert")
//			...
//		})[0]
//
// Inside a region, shapes are the shapes of a device's shards. The axes are
// strategy.Options.LogicalAxes, or the single axis "logical". On an axis of size 1, a collective
// returns its operand, so the same code also runs on one device.
//
// # Arguments and results
//
// The [sharding.Spec] of an argument or result lists the axes that split each dimension. An
// argument is replicated over axes that its spec does not name. Variables that the function reads
// are replicated over all axes.
//
// If the spec of a result does not name an axis, the result must be equal on all devices of that
// axis. Like shard_map, [Region] infers this property from the ops, and rejects a result that may
// differ. The results of [AllReduce], [AllGather] and [Broadcast] are equal on all devices.
//
// # Gradients
//
// The gradient of a region is the gradient of the equivalent computation on unsharded tensors. A
// result that is replicated on n devices counts once: its adjoint is divided by n on each device.
// The gradient of an argument that is replicated on n devices is the sum over these devices. The
// division is exact if n is a power of two, except for numbers that underflow. A sum of values that
// are known to be equal needs no communication.
//
//	collective      | its gradient
//	----------------+------------------------------------------
//	AllReduce, Sum  | AllReduce, Sum
//	AllReduce, Mean | AllReduce, Mean
//	AllReduce, Max  | none: stop the gradient before it
//	AllGather       | ReduceScatter
//	ReduceScatter   | AllGather
//	AllToAll        | AllToAll with exchanged dimensions
//	Permute, Shift  | Permute in the opposite direction
//	Broadcast       | the sum of the gradients, on the source device
//	Index           | none
//
// Values that the backward pass needs from the forward pass stay on their device and need no
// communication. Package remat can recompute them.
//
// # Random numbers
//
// All devices of a replica draw the same random numbers, because they share the state of the
// generator. Other replicas draw other numbers. To draw different numbers on each device, draw them
// for the unsharded tensor outside of the region and pass them as a split argument, or make them
// depend on [Index].
//
// # Nesting
//
// A region can be inside the body of package loop or a block of package remat, and can contain
// them. If a region is manual only over some axes, the partitioner splits tensors over the other
// axes, according to logical.SplitOver and logical.Replicate. Annotations of package logical are
// errors in a region over all axes, and logical.OnDevice is an error in any region.
//
// # Higher-level packages
//
// [github.com/tpustrategy/tpustrategy/lowering/manual/moe] implements a mixture-of-experts layer,
// [github.com/tpustrategy/tpustrategy/lowering/manual/pipeline] pipeline parallelism, and
// [github.com/tpustrategy/tpustrategy/lowering/manual/ring] ring attention.
package manual
