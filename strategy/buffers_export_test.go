package strategy

import "tpustrategy/pjrt"

// BuffersOf is a value's buffers, by device, for tests of what a device holds.
func BuffersOf(v Value) ([]*pjrt.Buffer, error) { return v.base().live() }
