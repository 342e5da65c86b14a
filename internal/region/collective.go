package region

import "github.com/tpustrategy/tpustrategy/internal/enum"

// The ops of the devices that run a region of kind [Manual] together. Axes name logical axes that
// are manual there, the slowest first. The devices that combine their operands differ in their
// coordinates on these axes only; the number of a device among them is that of its coordinates in
// row-major order.

// AllReduce returns the reduction of the operands of the devices, the same on each.
type AllReduce struct {
	Axes []string
	By   Reduction
}

// Reduction is how [AllReduce] combines elements.
type Reduction int

const (
	// Sum adds.
	Sum Reduction = iota
	// Max and Min take the largest and the smallest, element by element.
	Max
	Min
	// Only moves what one of the devices has to all, with its bits: the others have zeros.
	Only
)

// String returns the name of the reduction's StableHLO op, such as "add".
func (r Reduction) String() string { return enum.Name(r, "add", "maximum", "minimum", "add") }

// AllGather returns the operands of the devices one after another along dimension Dim.
type AllGather struct {
	Axes []string
	Dim  int
}

// ReduceScatter returns the device's part, along dimension Dim, of the sum of the operands.
type ReduceScatter struct {
	Axes []string
	Dim  int
}

// AllToAll cuts the operand along dimension Split, sends part i to device i, and returns the parts
// that came, one after another along dimension Concat.
type AllToAll struct {
	Axes          []string
	Split, Concat int
}

// Permute returns the operand of the device that sends to this one, or zeros if none does. A pair
// is the number of the device that sends and of the device that receives.
type Permute struct {
	Axes  []string
	Pairs [][2]int
}

// Number ignores the operand and returns the number of the device, an int32 scalar.
type Number struct{ Axes []string }

func (AllReduce) op()     {}
func (AllGather) op()     {}
func (ReduceScatter) op() {}
func (AllToAll) op()      {}
func (Permute) op()       {}
func (Number) op()        {}
