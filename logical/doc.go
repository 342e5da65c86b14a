// Package logical places tensors on the logical devices of a replica.
//
// A replica of a step runs on P logical devices (TPU cores). The three annotations of TensorFlow's
// TPUStrategy say which logical device holds which part of a tensor:
//
//   - [Split] cuts a tensor into parts, one for each logical device
//     (experimental_split_to_logical_devices).
//   - [Replicate] keeps a whole copy on every logical device
//     (experimental_replicate_to_logical_devices).
//   - [Assign] makes a tensor on one logical device: the tensor's op runs on that device alone
//     (experimental_assign_to_logical_device).
//
// [SplitOver] goes further than TensorFlow: it splits a tensor over named axes, and over some of
// them only.
//
// [On] runs a whole region of the step on one logical device, while the other logical devices skip
// the region.
//
// What nobody placed runs on every logical device of the replica, whole or on the device's part of
// split tensors. TensorFlow's TPUStrategy runs it on logical device 0 alone.
//
// # Two forms
//
// Annotate a node inside a step with the functions: each returns a node with the same value and the
// same gradient, placed as asked. Annotate the step's arguments and variables, which exist before
// the step does, with the values: [SplitInto], [Over], [Replicated], [AssignTo] and, for many
// variables at once, [Rules].
//
// Only a split saves memory for arguments and variables, because no op makes them: an argument or a
// variable that is assigned or replicated is stored whole on every logical device.
//
// # Placement never changes a result
//
// An annotation moves data and computes nothing. Without its annotations a step gives the same
// numbers, up to the rounding of sums that are taken in another order. What one device made reaches
// the others bit for bit.
//
// # What a placement costs
//
// The ops of [Assign] and [On] are in a branch that their device alone takes, which the compilers
// keep however cheap the ops are. Each result is sent to the other devices, so that a single addition
// costs less everywhere than placed: place what takes longer than sending its result. What the
// backward pass needs of a region stays on the device, and takes as much memory on the others, which
// fill it with zeros.
//
// # Order of the parts
//
// Split(x, p0, p1, ...) gives logical device i the part whose coordinates are those of i in a
// row-major grid of shape [p0, p1, ...], as in TensorFlow: with Split(x, 2, 2), device 1 holds the
// upper right quarter of a matrix.
//
// # Named axes
//
// The logical devices of a replica are a mesh. Name its axes with strategy.Options.LogicalAxes, the
// slowest first; their sizes multiply to P. Logical device i is at the row-major coordinates of i:
// on the axes model=4 and sequence=2, device 3 is at model=1, sequence=1. Neighbors on the last
// axis have consecutive numbers, so let the axis with the most traffic come last.
//
//	axes := []sharding.Axis{{Name: "model", Size: 4}, {Name: "sequence", Size: 2}}
//	strat, err := strategy.New(sys, strategy.Options{LogicalAxes: axes})
//	...
//	x = logical.SplitOver(x, "-", "sequence", "-")          // [batch, sequence, features]
//	q = logical.SplitOver(q, "-", "sequence", "model", "-") // [batch, sequence, heads, features]
//
// A split by names has one entry for each dimension, as JAX's PartitionSpec: - for a dimension that
// stays whole, an axis, or several axes joined by +. As one text, in files, flags and messages, it has
// commas between the entries: -,sequence,model+expert (see [ParseAnnotation]). Each axis appears once at
// most. Over the axes that it does not name, the tensor is replicated: a split need not use all
// devices. Without LogicalAxes a replica has one axis, [AxisName].
//
// Splits by numbers keep their meaning beside named axes: the parts are in the order of the device
// numbers, whichever axes that takes. A split by numbers that cuts an axis makes the program's mesh
// finer (see [Cut]), and changes nothing else.
//
// A rule for variables may also name the axis of the replicas, [ReplicaName], which shares the
// variables out among the replicas: Over("replica", "model") cuts the rows of a matrix over the
// replicas and the columns over an axis of each.
//
// # Rules
//
// [Rules] lay out variables by path, for package strategy and for package gomlx alike: how a variable is
// split over the mesh, and what of its training the replicas share out ([Share]). They are values, with
// a JSON form ([ParseRules]) and sets that have a name ([BuiltinRules]). What an optimizer keeps of a
// variable follows the variable ([StateOf]).
//
// # Errors
//
// Every error is an [*Error], or of rules a [*RuleError]. The values return it. The functions on nodes panic with it, as all
// GoMLX graph functions do; package strategy returns it from the call that traced the step.
package logical
