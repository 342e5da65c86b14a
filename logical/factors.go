package logical

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// Factors are the mesh axes into which a step cuts the logical axes of a replica, so that every
// split of the step takes whole axes. A logical axis that no split cuts is one mesh axis of its
// name. An axis that is cut has pieces name.0, name.1 and so on, the slowest first: the axis
// "logical" of 8 devices, cut in 2 x 4, is "logical.0" of size 2 and "logical.1" of size 4.
//
// Factors are an immutable value.
type Factors struct {
	axes []sharding.Axis
	of   []string // the logical axis that each is a piece of
}

// Cut returns the fewest factors of a replica's logical axes (see [Mesh]) that express all splits
// among the annotations. A split by names takes whole axes, and cuts none. A split by numbers has
// its parts in row-major order: parts p0, p1, ... cut the row-major list of devices at the products
// p0, p0*p1, ... Common factors exist exactly if the cuts of all splits and the borders of the axes
// divide one another. Splits without common factors, such as 3 x 2 and 2 x 3 of 6 devices, are an
// [*Error].
//
// An annotation that does not fit the mesh cuts nothing: [Annotation.ValidateOn] refuses it.
func Cut(mesh sharding.Mesh, annotations ...Annotation) (Factors, error) {
	devices, before := mesh.Size(), 1
	cuts := []int{1}
	for _, axis := range mesh.Axes() {
		before *= axis.Size
		cuts = append(cuts, before)
	}
	for _, a := range annotations {
		if a.pieces() != devices {
			continue
		}
		product := 1
		for _, part := range a.parts {
			product *= part
			cuts = append(cuts, product)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i := 1; i < len(cuts); i++ {
		if cuts[i]%cuts[i-1] != 0 {
			what := "splits of one step"
			if mesh.Rank() > 1 {
				what = fmt.Sprintf("the logical axes %v and the splits of one step", mesh)
			}
			return Factors{}, &Error{
				Op: "split", Dim: -1, Devices: devices,
				Reason: fmt.Sprintf("%s cut its %d logical devices both after %d and after %d", what, devices, cuts[i-1], cuts[i]),
				Hint:   "let one cut be a multiple of the other, as 2 and 4",
			}
		}
	}
	var f Factors
	before = 1
	for _, axis := range mesh.Axes() {
		var sizes []int
		for i, cut := range cuts {
			if cut > before && cut <= before*axis.Size {
				sizes = append(sizes, cut/cuts[i-1])
			}
		}
		before *= axis.Size
		if len(sizes) < 2 {
			f.axes, f.of = append(f.axes, axis), append(f.of, axis.Name)
			continue
		}
		for i, size := range sizes {
			f.axes = append(f.axes, sharding.Axis{Name: fmt.Sprintf("%s.%d", axis.Name, i), Size: size})
			f.of = append(f.of, axis.Name)
		}
	}
	return f, nil
}

// Axes returns the mesh axes of the factors, the slowest first.
func (f Factors) Axes() []sharding.Axis { return slices.Clone(f.axes) }

// Names returns the names of the axes, the slowest first.
func (f Factors) Names() []string {
	var names []string
	for _, axis := range f.axes {
		names = append(names, axis.Name)
	}
	return names
}

// Pieces returns the names of the axes into which the named logical axes are cut: those of the
// first logical axis from the slowest to the fastest, then those of the next. A name that is none
// of the logical axes, such as [ReplicaName], stands for itself.
func (f Factors) Pieces(names ...string) []string {
	var pieces []string
	for _, name := range names {
		known := false
		for i, of := range f.of {
			if of == name {
				pieces, known = append(pieces, f.axes[i].Name), true
			}
		}
		if !known {
			pieces = append(pieces, name)
		}
	}
	return pieces
}

// Divided returns the number of axes that have more than one device: 2 or more if tensors are split
// in a grid.
func (f Factors) Divided() int {
	n := 0
	for _, axis := range f.axes {
		if axis.Size > 1 {
			n++
		}
	}
	return n
}

// Spec returns the sharding of an annotated tensor of the given rank over a mesh that has the axes
// of the factors. A tensor that is assigned, replicated or not annotated is whole on each logical
// device. The annotation must be valid for the tensor, and must be among those that [Cut] made the
// factors from.
func (a Annotation) Spec(rank int, f Factors) sharding.Spec {
	if a.kind != KindSplit {
		return sharding.Replicated(rank)
	}
	dims := make([]sharding.Dim, rank)
	for dim, names := range a.axes {
		dims[dim].Axes = f.Pieces(names...)
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
