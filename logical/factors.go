package logical

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// AxisName is the mesh axis of the logical devices of a replica. When splits
// need it cut, its pieces are AxisName.0, AxisName.1, ... from major to minor.
const AxisName = "logical"

// Factors is the logical axis cut so that every split of a step is a choice of
// whole axes: [2, 4] for 8 logical devices means mesh axes of size 2 and 4, the
// last one fastest. A nil Factors is the uncut axis.
type Factors []int

// Factorize finds the coarsest factors that express all the splits among the
// annotations with the parts in row-major order. Each split of parts p0, p1, ...
// cuts the row-major list of devices at the prefix products p0, p0*p1, ...; a
// common factorization exists exactly when the cuts of all splits divide one
// another. Splits that do not agree (3 x 2 and 2 x 3 of 6 devices) are an error.
func Factorize(devices int, annotations ...Annotation) (Factors, error) {
	cuts := []int{1, devices}
	for _, a := range annotations {
		product := 1
		for _, part := range a.parts {
			product *= part
			cuts = append(cuts, product)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var factors Factors
	for i := 1; i < len(cuts); i++ {
		if cuts[i]%cuts[i-1] != 0 {
			return nil, &Error{
				Op: "split", Dim: -1, Devices: devices,
				Reason: fmt.Sprintf("splits of one step cut its %d logical devices both after %d and after %d", devices, cuts[i-1], cuts[i]),
				Hint:   "let one cut be a multiple of the other, as 2 and 4",
			}
		}
		factors = append(factors, cuts[i]/cuts[i-1])
	}
	if len(factors) == 0 {
		factors = Factors{devices}
	}
	return factors, nil
}

// Axes returns the mesh axes of the factors, major to minor.
func (f Factors) Axes() []sharding.Axis {
	if len(f) == 1 {
		return []sharding.Axis{{Name: AxisName, Size: f[0]}}
	}
	axes := make([]sharding.Axis, len(f))
	for i, size := range f {
		axes[i] = sharding.Axis{Name: fmt.Sprintf("%s.%d", AxisName, i), Size: size}
	}
	return axes
}

// Names returns the names of the axes, major to minor.
func (f Factors) Names() []string {
	var names []string
	for _, axis := range f.Axes() {
		names = append(names, axis.Name)
	}
	return names
}

// Spec returns the sharding of an annotated tensor of the given rank. A tensor
// that is assigned, replicated or not annotated is whole on each logical device.
// The annotation must be valid for the tensor, and the factors must come from a
// [Factorize] that saw it.
func (a Annotation) Spec(rank int, f Factors) sharding.Spec {
	if a.kind != KindSplit {
		return sharding.Replicated(rank)
	}
	dims := make([]sharding.Dim, rank)
	axes, next := f.Axes(), 0
	for dim, part := range a.parts {
		for part > 1 {
			part /= axes[next].Size
			dims[dim].Axes = append(dims[dim].Axes, axes[next].Name)
			next++
		}
	}
	return sharding.NewSpec(dims...)
}
