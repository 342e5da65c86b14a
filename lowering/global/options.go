package global

import (
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Options configures a Backend. The zero value splits batches over all devices and keeps variables
// whole on each.
type Options struct {
	// Name is the backend's short name; "tpustrategy" if empty.
	Name string
	// Logical is P, the number of logical devices of a replica; 0 is 1, or the product of Axes. The
	// other devices make R replicas.
	Logical int
	// Axes name the axes of a replica's logical devices, the slowest first; see logical.Mesh.
	Axes []sharding.Axis
	// Rules say how variables are laid out, by their paths.
	Rules Rules
	// Target is what programs are written for. Nil takes lowering.TargetCPU where the platform is
	// "cpu", and lowering.TargetTPU elsewhere.
	Target *lowering.Target
	// Precision is written on every dot_general and convolution.
	Precision lowering.Precision
	// Random is the generator of random bits.
	Random lowering.Random
}
