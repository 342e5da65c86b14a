package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// SplitOverAxes returns an annotation that splits a tensor over named axes, like [SplitOver] and
// JAX's PartitionSpec. dims has one entry for each dimension of the tensor: "-" or "" for a
// dimension that is not split, the name of an axis, or several names joined by "+" or ",", slowest
// first. The tensor is replicated over axes that are not named.
//
// For variables (see [Rules]), one entry can include the axis [ReplicaAxis]. Each replica then
// holds one shard of the variable along this dimension.
func SplitOverAxes(dims ...string) Annotation {
	axes := make([][]string, len(dims))
	for i, dim := range dims {
		if dim = strings.TrimSpace(dim); dim == "" || dim == "-" {
			continue
		}
		for name := range strings.SplitSeq(strings.ReplaceAll(dim, ",", "+"), "+") {
			axes[i] = append(axes[i], strings.TrimSpace(name))
		}
	}
	return Annotation{kind: KindSplit, axes: axes}
}

// Axes returns a copy of the axes that split each dimension, slowest first. It returns nil unless
// the annotation was built by [SplitOverAxes] or parsed from axis names.
func (a Annotation) Axes() [][]string {
	if a.axes == nil {
		return nil
	}
	axes := make([][]string, len(a.axes))
	for i, names := range a.axes {
		axes[i] = slices.Clone(names)
	}
	return axes
}

// Rank returns the rank that a tensor must have for the annotation, or -1 if the annotation is not
// a split and fits any rank.
func (a Annotation) Rank() int {
	switch {
	case a.kind != KindSplit:
		return -1
	case a.axes != nil:
		return len(a.axes)
	}
	return len(a.parts)
}

// PartsOn returns the number of shards of each dimension of a split on the given mesh. For a split
// over named axes this is the product of the sizes of the dimension's axes; unknown axes count as
// 1. PartsOn returns nil if the annotation is not a split.
func (a Annotation) PartsOn(mesh sharding.Mesh) []int {
	if a.axes == nil {
		return a.Parts()
	}
	parts := make([]int, len(a.axes))
	for dim, names := range a.axes {
		_, parts[dim] = region.NontrivialAxes(mesh, names)
	}
	return parts
}

// IsSharded reports whether a device of the mesh holds less than the complete tensor. Tensors that
// are assigned or replicated, or that are split only over axes of size 1, are complete on every
// device.
func (a Annotation) IsSharded(mesh sharding.Mesh) bool {
	if a.axes == nil {
		return slices.ContainsFunc(a.parts, func(part int) bool { return part > 1 })
	}
	return slices.ContainsFunc(a.axes, func(names []string) bool {
		_, parts := region.NontrivialAxes(mesh, names)
		return parts > 1
	})
}

// SamePlacement reports whether two annotations place a tensor in the same way on the mesh, so that
// converting from one to the other transfers no data. Both annotations must be valid for the
// tensor.
func (a Annotation) SamePlacement(b Annotation, mesh sharding.Mesh) bool {
	divides := a.IsSharded(mesh)
	switch {
	case divides != b.IsSharded(mesh):
		return false
	case !divides, a.Equal(b):
		return true
	case a.Rank() != b.Rank():
		return false
	}
	factors, err := FactorAxes(mesh, a, b)
	if err != nil {
		return false // the annotations have no common factors
	}
	withoutUnitAxes := func(a Annotation) sharding.Spec {
		dims := a.Spec(a.Rank(), factors).Dims()
		for i := range dims {
			dims[i].Axes = slices.DeleteFunc(dims[i].Axes, func(name string) bool {
				index := slices.IndexFunc(factors.axes, func(axis sharding.Axis) bool { return axis.Name == name })
				return index >= 0 && factors.axes[index].Size == 1
			})
		}
		return sharding.NewSpec(dims...)
	}
	return withoutUnitAxes(a).Equal(withoutUnitAxes(b))
}

// ReplicaDim returns the dimension that is split over [ReplicaAxis], or -1.
func (a Annotation) ReplicaDim() int {
	return slices.IndexFunc(a.axes, func(names []string) bool { return slices.Contains(names, ReplicaAxis) })
}

// WithinReplica returns the annotation without the axis [ReplicaAxis]. This is the split of a
// variable within each replica after it was gathered over the replicas.
func (a Annotation) WithinReplica() Annotation {
	if a.ReplicaDim() < 0 {
		return a
	}
	a.axes = a.Axes()
	for dim, names := range a.axes {
		a.axes[dim] = slices.DeleteFunc(names, func(name string) bool { return name == ReplicaAxis })
	}
	return a
}

// checkAxisNames returns the dimension of the first invalid axis name of a split, the problem, and
// a suggested correction. The reason is empty if all names are valid.
func (a Annotation) checkAxisNames(mesh sharding.Mesh) (dim int, reason, hint string) {
	firstDim := map[string]int{}
	for dim, names := range a.axes {
		for _, name := range names {
			_, known := mesh.AxisSize(name)
			first, repeated := firstDim[name]
			switch {
			case name == "":
				return dim, fmt.Sprintf("dimension %d has an empty axis name", dim),
					"write names joined by +, or - for a dimension that is not split"
			case !known && name == ReplicaAxis:
				return dim, fmt.Sprintf("dimension %d is split over the replicas", dim),
					"use axes of the replica (" + mesh.String() + "); only rules for the variables of a store name the replicas"
			case !known:
				return dim, fmt.Sprintf("dimension %d is split over axis %q, which the replica does not have", dim, name),
					"use one of " + mesh.String() + ", or add the axis to the replica"
			case repeated && first == dim:
				return dim, fmt.Sprintf("dimension %d is split over axis %q twice", dim, name), "use each axis once"
			case repeated:
				return dim, fmt.Sprintf("axis %q splits dimension %d and dimension %d", name, first, dim), "use each axis once"
			}
			firstDim[name] = dim
		}
	}
	return -1, "", ""
}

// formatAxisSizes returns the named axes with their sizes, such as "model=2, sequence=4".
func formatAxisSizes(mesh sharding.Mesh, names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		size, _ := mesh.AxisSize(name)
		texts[i] = fmt.Sprintf("%s=%d", name, size)
	}
	return strings.Join(texts, ", ")
}

// numParts returns the total number of shards of a split by number. It returns 0 for other
// annotations and for invalid numbers.
func (a Annotation) numParts() int {
	if len(a.parts) == 0 {
		return 0
	}
	product := 1
	for _, part := range a.parts {
		product *= max(part, 0)
	}
	return product
}

// WithoutLeadingDim returns the annotation of a slice of the annotated tensor along dimension 0,
// such as one layer of a stack. It returns the zero value if dimension 0 is split.
func (a Annotation) WithoutLeadingDim() Annotation {
	switch {
	case a.kind != KindSplit:
	case a.axes != nil:
		if len(a.axes) == 0 || len(a.axes[0]) > 0 {
			return Annotation{}
		}
		a.axes = a.Axes()[1:]
	case len(a.parts) == 0 || a.parts[0] != 1:
		return Annotation{}
	default:
		a.parts = a.Parts()[1:]
	}
	return a
}
