// Package tpu describes TPU slices and the assignment of logical devices to their cores.
//
// All values of this package are plain, immutable data. They do not open devices, are the same in
// every process, and may be shared between goroutines.
//
// # Topologies
//
// A [Topology] (TensorFlow's tf.tpu.experimental.Topology) describes the mesh of a slice, with the
// axes x, y, z and core. For each device it has the coordinates in the mesh, the process
// (TensorFlow's task) and the runtime id. A Topology is read from the runtime (package tpu/system),
// parsed from TensorFlow's protocol buffer ([ParseTopologyProto]) or, for devices without
// coordinates such as CPU devices, built by [LogicalTopology].
//
// [ParseAccelerator] parses the names of slices such as v5litepod-16, v4-8 and v5p:4x4x4. The
// resulting [Accelerator] provides the number of chips and hosts, the memory, the peak performance
// and the topology of a complete slice.
//
// # Device assignments
//
// A [DeviceAssignment] (TensorFlow's tf.tpu.experimental.DeviceAssignment) assigns a core to each
// logical core p of each replica r. [BuildDeviceAssignment] computes the same assignment as TensorFlow:
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
// The slices of a multislice topology are adjacent along x ([Topology.NumSlices]) and connected by
// the data-center network. With [AssignmentOptions].BySlice, all logical cores of a replica are on
// one slice. Otherwise replicas can span slices; [DeviceAssignment.ReplicasAcrossSlices] returns
// these replicas.
//
// # Replica numbers and device ids
//
// A core has three numbers:
//
//   - The replica r and logical core p are used in programs.
//   - The partition r*P + p identifies a device in collectives. Partitions are ordered by replica.
//   - The device id identifies a core in the runtime.
//
// Device ids are not ordered by replica. If the replicas fill the mesh, consecutive replicas are on
// neighboring chips along a ring, while device ids follow the rows of the mesh. The following
// example is a v3-8 with 2x2 chips of two cores:
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
// The device ids in replica order are therefore 0 1 2 3 6 7 4 5. [DeviceAssignment.DeviceID]
// returns the device id of a logical core, and [DeviceAssignment.LookupDevice] is the inverse. With
// [MeshOrder], replicas follow the rows of the mesh.
package tpu
