// Package sharding describes how tensors are laid over devices, as plain data.
//
// No value of this package holds a device, a client or C memory. All values are immutable, the same
// on every host, and safe to share between goroutines.
//
// # Meshes and specs
//
// A [Mesh] arranges devices on named axes. A [Spec] says, for each dimension of a tensor, over
// which axes it is split; [P] writes one:
//
//	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "logical", Size: 4})
//	spec := sharding.P("replica", nil, "logical")
//
// A dimension may be split over several axes, the major axis first, and may be left open for the
// partitioner ([Open]). [Spec.Validate] returns all problems at once, as [*SpecError] values that
// say what to write instead. A dimension that its axes do not divide is an error: it is never
// padded or replicated silently.
//
// [ShardShape], [IndexRanges], [ReplicationFactor] and [BytesPerDevice] say which
// device holds which part of a tensor.
//
// # Shardy text
//
// [Mesh.Shardy], [Spec.Shardy] and [Spec.ShardyBare] write the MLIR text of the Shardy partitioner;
// [ParseShardy] reads a spec back.
//
// # Shardings that name devices
//
// [OpSharding] is the older form of XLA's GSPMD partitioner and of TensorFlow. It reads and writes
// HLO text ([ParseOpSharding]) and the xla.OpSharding message ([ParseOpShardingProto]).
// [AssignToLogicalDevice], [ReplicateToLogicalDevices] and [SplitToLogicalDevices] make the
// shardings of TensorFlow's TPUStrategy, with its checks in its order; [OpTile], [OpPartialTile],
// [OpSubgroupTile], [OpSplit] and [OpMeshSplit] make the shardings of TensorFlow's xla_sharding
// module. Where TensorFlow fails by accident (a zero or negative partition, a negative device, an
// unknown rank), these functions return an error. [Spec.OpSharding] and [SpecOf] convert between
// the two forms.
//
// # Looking at a layout
//
// [Visualize] draws which device holds which part, and [BytesPerDevice] says how much.
package sharding
