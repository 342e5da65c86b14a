package region

import "github.com/tpustrategy/tpustrategy/internal/enum"

// The collectives among devices in a region of kind [Manual]. Axes are manual logical axes, the
// slowest first. A collective combines the devices that differ only in their coordinates on Axes.
// The index of a device among them is its row-major index of these coordinates.

// AllReduce returns the reduction of the devices' operands, the same on each device.
type AllReduce struct {
	Axes      []string
	Reduction Reduction
}

// Reduction is the operation of [AllReduce].
type Reduction int

const (
	// Sum is the elementwise sum.
	Sum Reduction = iota
	// Max and Min are the elementwise maximum and minimum.
	Max
	Min
	// Broadcast copies the value of one device to all devices, bit by bit. The other devices must have
	// zeros.
	Broadcast
)

// String returns the name of the reduction's StableHLO op, such as "add".
func (r Reduction) String() string { return enum.Name(r, "add", "maximum", "minimum", "add") }

// AllGather returns the concatenation of the devices' operands along dimension Dim.
type AllGather struct {
	Axes []string
	Dim  int
}

// ReduceScatter returns the device's slice, along dimension Dim, of the sum of the operands.
type ReduceScatter struct {
	Axes []string
	Dim  int
}

// AllToAll splits the operand along dimension Split, sends slice i to device i, and returns the
// concatenation of the received slices along dimension Concat.
type AllToAll struct {
	Axes          []string
	Split, Concat int
}

// Permute returns the operand of the device that sends to this device, or zeros if no device does.
// A pair contains the index of the sender and the index of the receiver.
type Permute struct {
	Axes  []string
	Pairs [][2]int
}

// DeviceIndex ignores the operand and returns the index of the device, an int32 scalar.
type DeviceIndex struct{ Axes []string }

func (AllReduce) op()     {}
func (AllGather) op()     {}
func (ReduceScatter) op() {}
func (AllToAll) op()      {}
func (Permute) op()       {}
func (DeviceIndex) op()   {}
