// Package logical places tensors on the logical devices of a replica.
//
// A replica of a step runs on P logical devices (TPU cores). Three annotations correspond to the
// annotations of TensorFlow's TPUStrategy:
//
//   - [Split] splits a tensor into one shard for each logical device
//     (experimental_split_to_logical_devices).
//   - [Replicate] keeps a copy of a tensor on every logical device
//     (experimental_replicate_to_logical_devices).
//   - [Assign] runs the op that computes a tensor on a single logical device
//     (experimental_assign_to_logical_device).
//
// Two functions have no counterpart in TensorFlow. [SplitOver] splits a tensor over named axes, and
// can leave the tensor replicated over the other axes. [OnDevice] runs a region of the step on one
// logical device while the other logical devices skip it.
//
// Ops without an annotation run on every logical device of the replica, either on complete tensors
// or on the device's shards of split tensors. TensorFlow's TPUStrategy runs such ops only on
// logical device 0.
//
// # Annotating nodes, arguments and variables
//
// The functions above annotate a node inside a step. Each returns a node with the same value and
// the same gradient. Arguments and variables exist before the step is traced, so they are annotated
// with values: [SplitInto], [SplitOverAxes], [Replicated] and [AssignTo], or [Rules] for many
// variables at once.
//
// For arguments and variables, only a split saves memory. An argument or variable that is
// assigned or replicated is stored completely on every logical device.
//
// # Effect on results
//
// An annotation moves data but computes nothing. Without its annotations a step returns the same
// values, except that sums can be rounded differently because their terms are added in another
// order. Values that one device computes are transferred to the other devices unchanged.
//
// # Cost
//
// The ops of [Assign] and [OnDevice] are compiled into a branch that only the assigned device
// executes. The result is then sent to the other devices. Placing an op on one device is therefore
// only useful if the op takes longer than sending its result. Values that the backward pass needs
// from a region use the same amount of memory on all devices; the other devices fill theirs with
// zeros.
//
// # Order of shards
//
// Split(x, p0, p1, ...) assigns shards to logical devices in row-major order over a grid of shape
// [p0, p1, ...], as TensorFlow does. With Split(x, 2, 2), device 1 holds the upper right quarter of
// a matrix.
//
// # Named axes
//
// The logical devices of a replica form a mesh. Its axes are set with strategy.Options.LogicalAxes,
// slowest first, and the product of their sizes is P. Logical device i has the row-major
// coordinates of i: with the axes model=4 and sequence=2, device 3 is at model=1, sequence=1.
// Neighbors on the last axis have consecutive device numbers, so the axis with the most
// communication should be last.
//
//	axes := []sharding.Axis{{Name: "model", Size: 4}, {Name: "sequence", Size: 2}}
//	strat, err := strategy.New(sys, strategy.Options{LogicalAxes: axes})
//	...
//	x = logical.SplitOver(x, "-", "sequence", "-")          // [batch, sequence, features]
//	q = logical.SplitOver(q, "-", "sequence", "model", "-") // [batch, sequence, heads, features]
//
// Like JAX's PartitionSpec, a split over named axes has one entry for each dimension: "-" for a
// dimension that is not split, the name of an axis, or several names joined by "+". In files, flags
// and messages the entries are separated by commas, as in "-,sequence,model+expert" (see
// [ParseAnnotation]). Each axis can be used once. The tensor is replicated over axes that are not
// named. Without LogicalAxes a replica has the single axis [LogicalAxis].
//
// Splits by number ([Split], [SplitInto]) can be combined with named axes. Their shards are in the
// order of the device numbers, independent of the axes. If such a split divides an axis, the mesh
// of the compiled program has more and smaller axes (see [FactorAxes]); results do not change.
//
// An annotation of a variable can also name the axis of the replicas, [ReplicaAxis]. The variable
// is then sharded over the replicas: SplitOverAxes("replica", "model") splits the rows of a matrix
// over the replicas, and the columns over an axis of each replica.
//
// # Rules
//
// [Rules] place variables by path, in package strategy and in package gomlx. A rule sets the split
// of matching variables over the mesh, or which training state is sharded over the replicas
// ([MatchState]). Rules have a JSON form ([ParseRules]) and built-in sets ([BuiltinRules]). The
// optimizer state of a variable is placed like the variable ([OwnerOfState]).
//
// # Errors
//
// Functions that return an error return an [*Error], or a [*RuleError] for rules. Functions on
// nodes panic with the error, like all GoMLX graph functions; package strategy recovers the panic
// and returns the error from the call that traced the step.
package logical
