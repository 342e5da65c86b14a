package strategy

import "github.com/tpustrategy/tpustrategy/pjrt"

// BuffersOf is a value's buffers, by device, for tests of what a device holds.
func BuffersOf(v Value) ([]*pjrt.Buffer, error) { return v.base().live() }

// Ragged says that a value's replicas have the given shapes: what is beyond is padding, with
// whatever contents the value has there.
func Ragged(v *PerReplica, shapes [][]int) *PerReplica {
	v.ragged = shapes
	return v
}
