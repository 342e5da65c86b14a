package logical

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// AxisFactors contains the mesh axes of a compiled step. They are the logical axes of a replica,
// factored so that every split of the step uses complete axes. A logical axis that is not divided
// keeps its name. A divided axis becomes the axes name.0, name.1 and so on, slowest first. For
// example, an axis "logical" of 8 devices can be factored into "logical.0" of size 2 and
// "logical.1" of size 4. An AxisFactors value is immutable.
type AxisFactors struct {
	axes         []sharding.Axis
	logicalNames []string // the name of each factor's logical axis
}

// FactorAxes factors a replica's logical axes (see [NewMesh]) into the smallest number of axes that
// can express all splits of the annotations. A split over named axes does not divide an axis. A
// split by number with parts p0, p1, ... divides the row-major list of devices at the products p0,
// p0*p1, and so on.
//
// The factors exist only if, for any two of these products and the cumulative products of the axis
// sizes, one divides the other. Otherwise, as for splits into 3 x 2 and 2 x 3 over 6 devices,
// FactorAxes returns an [*Error]. Annotations that do not fit the mesh are ignored;
// [Annotation.ValidateOn] reports them.
func FactorAxes(mesh sharding.Mesh, annotations ...Annotation) (AxisFactors, error) {
	devices, size := mesh.Size(), 1
	products := []int{1}
	for _, axis := range mesh.Axes() {
		size *= axis.Size
		products = append(products, size)
	}
	for _, a := range annotations {
		if a.numParts() != devices {
			continue
		}
		product := 1
		for _, part := range a.parts {
			product *= part
			products = append(products, product)
		}
	}
	slices.Sort(products)
	products = slices.Compact(products)
	for i := 1; i < len(products); i++ {
		if products[i]%products[i-1] != 0 {
			subject := "the splits of the step"
			if mesh.Rank() > 1 {
				subject = fmt.Sprintf("the logical axes %v and the splits of the step", mesh)
			}
			return AxisFactors{}, &Error{
				Op: "split", Dim: -1, Devices: devices,
				Reason: fmt.Sprintf("%s divide the %d logical devices into both %d and %d groups",
					subject, devices, products[i-1], products[i]),
				Hint: "one number of groups must be a multiple of the other, as 2 and 4",
			}
		}
	}
	var factors AxisFactors
	size = 1
	for _, axis := range mesh.Axes() {
		var sizes []int
		for i, product := range products {
			if product > size && product <= size*axis.Size {
				sizes = append(sizes, product/products[i-1])
			}
		}
		size *= axis.Size
		if len(sizes) < 2 {
			factors.axes, factors.logicalNames = append(factors.axes, axis), append(factors.logicalNames, axis.Name)
			continue
		}
		for i, size := range sizes {
			factors.axes = append(factors.axes, sharding.Axis{Name: fmt.Sprintf("%s.%d", axis.Name, i), Size: size})
			factors.logicalNames = append(factors.logicalNames, axis.Name)
		}
	}
	return factors, nil
}

// Axes returns a copy of the factors as mesh axes, slowest first.
func (f AxisFactors) Axes() []sharding.Axis { return slices.Clone(f.axes) }

// Names returns the names of the factors, slowest first.
func (f AxisFactors) Names() []string {
	var names []string
	for _, axis := range f.axes {
		names = append(names, axis.Name)
	}
	return names
}

// FactorsOf returns the factors of the named logical axes: all factors of the first name, slowest
// first, then all factors of the next name, and so on. A name that is not a logical axis, such as
// [ReplicaAxis], is returned unchanged.
func (f AxisFactors) FactorsOf(names ...string) []string {
	var axes []string
	for _, name := range names {
		found := false
		for i, logicalName := range f.logicalNames {
			if logicalName == name {
				axes, found = append(axes, f.axes[i].Name), true
			}
		}
		if !found {
			axes = append(axes, name)
		}
	}
	return axes
}

// NumSplit returns the number of factors with more than one device.
func (f AxisFactors) NumSplit() int {
	n := 0
	for _, axis := range f.axes {
		if axis.Size > 1 {
			n++
		}
	}
	return n
}

// Spec returns the sharding of a tensor of the given rank with this annotation, over the axes of f.
// The annotation must be valid for the tensor, and must be one of the annotations passed to
// [FactorAxes]. If the annotation is not a split, the tensor is replicated.
func (a Annotation) Spec(rank int, f AxisFactors) sharding.Spec {
	if a.kind != KindSplit {
		return sharding.Replicated(rank)
	}
	dims := make([]sharding.Dim, rank)
	for dim, names := range a.axes {
		dims[dim].Axes = f.FactorsOf(names...)
	}
	next := 0
	for dim, part := range a.parts {
		for ; part > 1; next++ {
			if axis := f.axes[next]; axis.Size > 1 {
				part /= axis.Size
				dims[dim].Axes = append(dims[dim].Axes, axis.Name)
			}
		}
	}
	return sharding.NewSpec(dims...)
}
