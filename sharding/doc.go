// Package sharding describes how tensors are split and replicated over devices.
//
// All values of this package are plain, immutable data. They hold no device, client or C memory,
// are the same on every host, and may be shared between goroutines.
//
// # Meshes and specs
//
// A [Mesh] arranges devices on named axes. A [Spec] lists, for each dimension of a tensor, the mesh
// axes that split the dimension. [P] builds a Spec:
//
//	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "logical", Size: 4})
//	spec := sharding.P("replica", nil, "logical")
//
// A dimension can be split over several axes, listed with the major axis first, or left open for
// the partitioner ([OpenDim]). [Spec.Validate] returns all problems of a spec at once, as
// [*SpecError] values that include a suggested correction. If the axes of a dimension do not divide
// its size, validation fails; the dimension is never padded or replicated silently.
//
// [ShardShape], [IndexRanges], [ReplicationFactor] and [BytesPerDevice] compute the shard of a
// tensor that each device holds.
//
// # Shardy text
//
// [Mesh.ShardyText], [Spec.ShardyText] and [Spec.ShardyTextBare] write MLIR text for the Shardy
// partitioner. [ParseShardy] parses a spec from this text.
//
// # Shardings that list devices
//
// [OpSharding] is the representation that XLA's GSPMD partitioner and TensorFlow use. It lists
// devices instead of mesh axes. [ParseOpSharding] parses HLO text, and [ParseOpShardingProto]
// parses a serialized xla.OpSharding message. [Spec.OpSharding] and [SpecOf] convert between the
// two representations.
//
// [AssignToLogicalDevice], [ReplicateToLogicalDevices] and [SplitToLogicalDevices] build the
// shardings of TensorFlow's TPUStrategy and check their arguments in the same order as TensorFlow.
// [OpTile], [OpPartialTile], [OpSubgroupTile], [OpSplit] and [OpMeshSplit] build the shardings of
// TensorFlow's xla_sharding module. These functions return an error for arguments that make
// TensorFlow crash: a partition below 1, a negative device, or an unknown rank.
//
// # Drawing a sharding
//
// [Visualize] and [VisualizeOp] draw an ASCII table of the devices that hold each shard.
package sharding
