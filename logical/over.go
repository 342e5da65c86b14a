package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Over returns the annotation of [SplitOver], the value form of a split by names: JAX's
// PartitionSpec. dims has one entry for each dimension of the tensor: "-" or "" for a dimension that
// stays whole, the name of an axis, or names joined by + (or commas), the slowest axis first, as
// "expert+model". A tensor is replicated over the axes that no entry names.
//
// In a rule for variables (see [Rules]) one entry may be the axis of the replicas, [ReplicaName]: of
// such a variable each replica holds a part along that dimension.
func Over(dims ...string) Annotation {
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

// Axes returns a copy of the axes that split each dimension, the slowest first, of an annotation of
// [Over], and nil for any other.
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

// Rank returns the number of dimensions that a tensor must have for the annotation, or -1 if the
// annotation, which is no split, fits any.
func (a Annotation) Rank() int {
	switch {
	case a.kind != KindSplit:
		return -1
	case a.axes != nil:
		return len(a.axes)
	}
	return len(a.parts)
}

// PartsOn returns the number of parts of each dimension of a split, over the given logical axes:
// for a split by names the product of the sizes of the dimension's axes. It returns nil for an
// annotation that is no split. An axis that the mesh lacks counts as 1.
func (a Annotation) PartsOn(mesh sharding.Mesh) []int {
	if a.axes == nil {
		return a.Parts()
	}
	parts := make([]int, len(a.axes))
	for dim, names := range a.axes {
		_, parts[dim] = region.Divided(mesh, names)
	}
	return parts
}

// Divides reports whether some device of the mesh holds only a part of a tensor with this
// annotation. Assigned and replicated tensors are whole on every device, and so is a tensor that is
// split over no axis, or over axes of one device.
func (a Annotation) Divides(mesh sharding.Mesh) bool {
	if a.axes == nil {
		return slices.ContainsFunc(a.parts, func(part int) bool { return part > 1 })
	}
	return slices.ContainsFunc(a.axes, func(names []string) bool {
		_, parts := region.Divided(mesh, names)
		return parts > 1
	})
}

// Alike reports whether two annotations lay a tensor over the mesh in the same way: no device needs
// anything of another one to go from one to the other. Both must be valid for the tensor.
func (a Annotation) Alike(b Annotation, mesh sharding.Mesh) bool {
	divides := a.Divides(mesh)
	switch {
	case divides != b.Divides(mesh):
		return false
	case !divides, a.Equal(b):
		return true
	case a.Rank() != b.Rank():
		return false
	}
	factors, err := Cut(mesh, a, b)
	if err != nil {
		return false // their cuts differ
	}
	alone := func(a Annotation) sharding.Spec { // without the axes of one device
		dims := a.Spec(a.Rank(), factors).Dims()
		for i := range dims {
			dims[i].Axes = slices.DeleteFunc(dims[i].Axes, func(name string) bool {
				at := slices.IndexFunc(factors.axes, func(axis sharding.Axis) bool { return axis.Name == name })
				return at >= 0 && factors.axes[at].Size == 1
			})
		}
		return sharding.NewSpec(dims...)
	}
	return alone(a).Equal(alone(b))
}

// ReplicaDim returns the dimension that is split over the axis of the replicas, or -1.
func (a Annotation) ReplicaDim() int {
	return slices.IndexFunc(a.axes, func(names []string) bool { return slices.Contains(names, ReplicaName) })
}

// WithinReplica returns the annotation without the axis of the replicas: how one replica's tensor
// is split if the tensor is whole on each replica.
func (a Annotation) WithinReplica() Annotation {
	if a.ReplicaDim() < 0 {
		return a
	}
	a.axes = a.Axes()
	for dim, names := range a.axes {
		a.axes[dim] = slices.DeleteFunc(names, func(name string) bool { return name == ReplicaName })
	}
	return a
}

// misnamed returns what is wrong with the names of the axes on a mesh, and in which dimension.
func (a Annotation) misnamed(mesh sharding.Mesh) (dim int, reason, hint string) {
	at := map[string]int{}
	for dim, names := range a.axes {
		for _, name := range names {
			_, known := mesh.AxisSize(name)
			first, repeated := at[name]
			switch {
			case name == "":
				return dim, fmt.Sprintf("dimension %d has an axis without a name", dim), "give names with one + between two, or - for a dimension that stays whole"
			case !known && name == ReplicaName:
				return dim, fmt.Sprintf("dimension %d is split over the replicas", dim), "name axes of the replica (" + mesh.String() + "); only rules for the variables of a store name the replicas"
			case !known:
				return dim, fmt.Sprintf("dimension %d is split over axis %q, which the replica does not have", dim, name), "name one of " + mesh.String() + ", or give the replica the axis"
			case repeated && first == dim:
				return dim, fmt.Sprintf("dimension %d is split over axis %q twice", dim, name), "name an axis once"
			case repeated:
				return dim, fmt.Sprintf("axis %q splits dimension %d and dimension %d", name, first, dim), "name an axis once"
			}
			at[name] = dim
		}
	}
	return -1, "", ""
}

// sizesText returns the sizes of axes as model=2, sequence=4.
func sizesText(mesh sharding.Mesh, names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		size, _ := mesh.AxisSize(name)
		texts[i] = fmt.Sprintf("%s=%d", name, size)
	}
	return strings.Join(texts, ", ")
}

// pieces returns into how many parts a split by numbers cuts a tensor, or 0 for another annotation
// and for numbers below 1.
func (a Annotation) pieces() int {
	if len(a.parts) == 0 {
		return 0
	}
	product := 1
	for _, part := range a.parts {
		product *= max(part, 0)
	}
	return product
}

// Slice returns how the slices along dimension 0 of a tensor with the annotation are split, such as
// the layers of a stack. It is the zero value if dimension 0 itself is split.
func (a Annotation) Slice() Annotation {
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
