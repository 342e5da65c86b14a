package logical

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// AxisName is the name of the mesh axis of a replica's logical devices. If splits need the axis
// cut, its pieces are AxisName.0, AxisName.1 and so on, from major to minor.
const AxisName = "logical"

// Factors lists the sizes of the mesh axes into which the logical axis is cut, so that every split
// of a step takes whole axes: [2, 4] for 8 logical devices means mesh axes of size 2 and 4, of
// which the last varies fastest.
type Factors []int

// Factorize returns the fewest factors that express all splits among the annotations, with the
// parts in row-major order. A split into parts p0, p1, ... cuts the row-major list of devices at
// the products p0, p0*p1, ... Common factors exist exactly if the cuts of all splits divide one
// another. Splits without common factors, such as 3 x 2 and 2 x 3 of 6 devices, are an [*Error].
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

// Axes returns the mesh axes of the factors, from major to minor.
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

// Names returns the names of the axes, from major to minor.
func (f Factors) Names() []string {
	var names []string
	for _, axis := range f.Axes() {
		names = append(names, axis.Name)
	}
	return names
}

// Spec returns the sharding of an annotated tensor of the given rank. A tensor that is assigned,
// replicated or not annotated is whole on each logical device. The annotation must be valid for the
// tensor, and must be among those that [Factorize] made the factors from.
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
