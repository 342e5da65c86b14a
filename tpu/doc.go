// Package tpu describes TPU slices and who computes where on them, as plain data. Nothing here
// opens a device: all values are immutable, the same in every process, and safe to share between
// goroutines.
//
// # Topologies
//
// A [Topology] (TensorFlow's tf.tpu.experimental.Topology) is the mesh of a slice, in x, y, z and
// core, with the place, the process (TensorFlow's task) and the runtime id of each device. It comes
// from the runtime, from TensorFlow's wire form ([ParseTopologyProto]), or, for devices that have
// no coordinates, such as those of a CPU, from [LogicalTopology].
//
// [ParseAccelerator] reads what users type (v5litepod-16, v4-8, v5p:4x4x4) into an [Accelerator],
// which knows its chips, hosts, memory and peak, and the topology it has when nothing is missing.
//
// # Device assignments
//
// A [DeviceAssignment] (TensorFlow's tf.tpu.experimental.DeviceAssignment) says which core is
// logical core p of replica r. [BuildDeviceAssignment] makes a DeviceAssignment with TensorFlow's
// algorithm, core for core:
//
//	slice, err := tpu.ParseAccelerator("v3-8")
//	topology, err := slice.Topology()
//	assignment, err := tpu.BuildDeviceAssignment(topology, tpu.AssignmentOptions{
//		ComputationShape: []int{1, 1, 1, 2}, // two cores per replica
//		Replicas:         4,
//	})
//
// # Several slices
//
// A topology of several slices has them side by side along x ([Topology.NumSlices]). Between slices
// is the data-center network. [AssignmentOptions].BySlice puts replicas across the slices and the
// logical cores of each replica inside one; [DeviceAssignment.Spanning] lists the replicas for which
// that is not so.
//
// # Replica ids are not device ids
//
// Three numberings meet here, and they differ:
//
//   - the replica id r and logical core p, by which a program is written;
//   - the partition r*P + p, by which collectives name devices;
//   - the device id, by which the runtime knows a core.
//
// The partition follows the replica id, so a collective over partitions is a collective over
// replicas in their order. The device id does not: where replicas fill the mesh, they walk a ring
// of neighboring chips, not the rows in which devices are numbered. On a v3-8, 2x2 chips of two
// cores each:
//
//	 chips, with their device ids      replicas of [1, 1, 1, 2] in ring order
//
//	       x=0        x=1                    x=0        x=1
//	y=0  [ 0 1 ] -- [ 2 3 ]           y=0   r=0  ---->  r=1
//	        |          |                     ^           |
//	y=1  [ 4 5 ] -- [ 6 7 ]           y=1   r=3  <----  r=2
//
//	replica             0      1      2      3
//	partitions          0 1    2 3    4 5    6 7
//	device ids          0 1    2 3    6 7    4 5
//
// So the device ids of the replicas, read in order, are 0 1 2 3 6 7 4 5. That is no mistake: each
// replica's neighbors are one link away. Use [DeviceAssignment.DeviceID] and
// [DeviceAssignment.Lookup] to go from one to the other, and [MeshOrder] to have replicas in the
// order of the rows.
package tpu
