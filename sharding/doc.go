// Package sharding describes how tensors are laid over devices, as plain data.
//
// Nothing here holds a device, a client or C memory: all values are immutable,
// the same on every host, and safe to share between goroutines.
//
// # Meshes and specs
//
// A [Mesh] arranges devices on named axes. A [Spec] says, for each dimension
// of a tensor, over which axes it is split; [P] writes one:
//
//	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "logical", Size: 4})
//	spec := sharding.P("replica", nil, "logical")
//
// A dimension may be split over several axes, the major one first, and may be
// left open for the partitioner ([Open]). [Spec.Validate] reports every
// problem at once, as [*SpecError] values that say what to write instead; a
// dimension that its axes do not divide is an error, never padded or
// replicated behind your back.
//
// [ShardShape], [IndexRanges], [DevicesHolding], [ReplicationFactor] and
// [BytesPerDevice] answer who holds what.
//
// # Shardy text
//
// [Mesh.Shardy], [Spec.Shardy] and [Spec.ShardyBare] write the MLIR text of
// the Shardy partitioner; [ParseShardy] and [ParseShardyMesh] read it back.
package sharding
