package region

import "github.com/tpustrategy/tpustrategy/internal/enum"

// Collective is an [Op] that exchanges data between devices that differ only in their coordinates
// on the collective's axes. The axes are either the replica axis, or logical axes over which an
// open region is [Manual], slowest first. The index of a device is the row-major index of its
// coordinates on these axes.
type Collective interface {
	Op
	// AxisNames returns the axes of the collective.
	AxisNames() []string
	// ResultDims returns the dimensions of the result for an operand with dims on n devices. It may
	// change dims.
	ResultDims(dims []int, n int) []int
	// Reduces returns the reduction of the devices' elements. ok is false for a collective that
	// only moves elements.
	Reduces() (r Reduction, ok bool)
	// IsReplicated reports whether the result is the same on all devices of the axes.
	IsReplicated() bool
}

// Reduction is the operation with which a collective combines elements.
type Reduction int

const (
	// Sum is the elementwise sum.
	Sum Reduction = iota
	// Max and Min are the elementwise maximum and minimum.
	Max
	Min
	// Broadcast copies the value of one device to all devices, bit by bit. The other devices must
	// have zeros.
	Broadcast
)

// String returns the name of the reduction's StableHLO op, such as "add".
func (r Reduction) String() string { return enum.Name(r, "add", "maximum", "minimum", "add") }

// AllReduce returns the reduction of the devices' operands.
type AllReduce struct {
	Axes      []string
	Reduction Reduction
}

func (AllReduce) op()                                {}
func (c AllReduce) AxisNames() []string              { return c.Axes }
func (AllReduce) ResultDims(dims []int, _ int) []int { return dims }
func (c AllReduce) Reduces() (Reduction, bool)       { return c.Reduction, true }
func (AllReduce) IsReplicated() bool                 { return true }

// AllGather returns the concatenation of the devices' operands along dimension Dim.
type AllGather struct {
	Axes []string
	Dim  int
}

func (AllGather) op()                   {}
func (c AllGather) AxisNames() []string { return c.Axes }
func (c AllGather) ResultDims(dims []int, n int) []int {
	dims[c.Dim] *= n
	return dims
}
func (AllGather) Reduces() (Reduction, bool) { return 0, false }
func (AllGather) IsReplicated() bool         { return true }

// ReduceScatter returns the device's slice, along dimension Dim, of the sum of the operands.
type ReduceScatter struct {
	Axes []string
	Dim  int
}

func (ReduceScatter) op()                   {}
func (c ReduceScatter) AxisNames() []string { return c.Axes }
func (c ReduceScatter) ResultDims(dims []int, n int) []int {
	dims[c.Dim] /= n
	return dims
}
func (ReduceScatter) Reduces() (Reduction, bool) { return Sum, true }
func (ReduceScatter) IsReplicated() bool         { return false }

// AllToAll splits the operand along dimension Split, sends slice i to device i, and returns the
// concatenation of the received slices along dimension Concat.
type AllToAll struct {
	Axes          []string
	Split, Concat int
}

func (AllToAll) op()                   {}
func (c AllToAll) AxisNames() []string { return c.Axes }
func (c AllToAll) ResultDims(dims []int, n int) []int {
	dims[c.Split] /= n
	dims[c.Concat] *= n
	return dims
}
func (AllToAll) Reduces() (Reduction, bool) { return 0, false }
func (AllToAll) IsReplicated() bool         { return false }

// Permute sends the operand from device pair[0] to device pair[1] for each of Pairs. The result is
// the received value, or zeros on a device that receives nothing.
type Permute struct {
	Axes  []string
	Pairs [][2]int
}

func (Permute) op()                                {}
func (c Permute) AxisNames() []string              { return c.Axes }
func (Permute) ResultDims(dims []int, _ int) []int { return dims }
func (Permute) Reduces() (Reduction, bool)         { return 0, false }
func (Permute) IsReplicated() bool                 { return false }

// DeviceIndex ignores the operand and returns the device's index on manual axes as an int32 scalar.
type DeviceIndex struct{ Axes []string }

func (DeviceIndex) op() {}
