// Package manual runs a function on each logical device of a replica, over the device's own shards,
// with collectives between the devices: JAX's shard_map, and what TensorFlow's manual sharding ops
// are for.
//
// Package logical says where tensors are, and the partitioner works out what each device does and
// sends. Use a manual region where you know better what is to be sent: to dispatch tokens to
// experts, to pass activations from one stage of a pipeline to the next, to pass keys round a ring
// of devices.
//
//	// w is [experts, width, hidden], x is [tokens, width].
//	y := manual.Region([]string{"expert"},
//		[]manual.Arg{manual.In(x, "expert"), manual.In(w, "expert")},
//		[]sharding.Spec{sharding.P("expert")},
//		func(in []*graph.Node) []*graph.Node {
//			x, w := in[0], in[1] // the device's tokens and the device's experts
//			...
//			x = manual.AllToAll(x, 0, 1, "expert")
//			...
//		})[0]
//
// Inside of a region shapes are a device's own. The axes are those of strategy.Options.LogicalAxes,
// or the one axis "logical" of the replica's P devices. On an axis of one device a collective
// returns its operand, so that the same code runs on one device.
//
// # What crosses the border
//
// The [sharding.Spec] of an argument and of a result names the axes over which each dimension is
// cut. An argument is whole on the devices of an axis that its spec does not name, and so are
// variables that the function reads without being given them.
//
// A result whose spec does not name an axis has to be equal on the devices of that axis. [Region]
// follows the ops to see that it is, as shard_map's check does, and refuses a result that may
// differ. [AllReduce], [AllGather] and [Broadcast] make values equal.
//
// # Gradients
//
// The gradient of a region is that of the same computation of whole tensors: a result that n
// devices agree on counts once, and the gradient of an argument that is whole on n devices is the
// sum of theirs. The adjoint of such a result is divided by n on each device and sums are sums of
// the devices' adjoints, which is exact where n is a power of two, but for numbers that underflow.
// Where a sum is over values that are known to be equal, nothing is sent.
//
//	collective      | its gradient
//	----------------+------------------------------------------
//	AllReduce, Sum  | AllReduce, Sum
//	AllReduce, Mean | AllReduce, Mean
//	AllReduce, Max  | none: stop the gradient before it
//	AllGather       | ReduceScatter
//	ReduceScatter   | AllGather
//	AllToAll        | AllToAll, its dimensions exchanged
//	Permute, Shift  | Permute, the other way
//	Broadcast       | the sum of the gradients, on the one device
//	Index           | none
//
// What the backward pass reads of the forward pass stays on its device and costs no communication.
// Package remat can have it computed again.
//
// # Random numbers
//
// The devices of a replica draw the same random numbers, because they share the generator's state,
// and those of another replica draw others.
// Where the numbers are to differ, draw them for the whole tensor outside of the region and cut
// them as an argument, or make them depend on [Index].
//
// # Regions in regions
//
// A region may stand in the body of package loop and in a block of package remat, and these may
// stand in a region. In a region over some of the axes, the partitioner divides tensors over the
// others, and logical.SplitOver and logical.Replicate say how. Annotations of package logical have
// no meaning in a region over all axes, nor has logical.On in any: they are errors.
//
// # Parts of models that are built so
//
// [github.com/tpustrategy/tpustrategy/manual/moe] is a layer of experts,
// [github.com/tpustrategy/tpustrategy/manual/pipeline] is a pipeline of stages, and
// [github.com/tpustrategy/tpustrategy/manual/ring] is attention over a sequence in parts.
package manual
