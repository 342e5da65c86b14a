package strategy

import "github.com/tpustrategy/tpustrategy/pjrt"

// BuffersOf returns a value's buffers, by device, for tests of the contents of devices.
func BuffersOf(v Value) ([]*pjrt.Buffer, error) { return v.base().openBuffers() }

// Ragged sets the shapes of a value's replicas. Elements outside of these shapes are padding, with
// the contents that the value has there.
func Ragged(v *PerReplica, shapes [][]int) *PerReplica {
	v.replicaShapes = shapes
	return v
}
