package sharding

import (
	"fmt"
	"slices"
)

// Dim describes the split of one tensor dimension. Axes are the mesh axes that split the dimension,
// with the major axis first. A dimension without axes that is not Open is unsplit: every device
// holds all its indices.
//
// If Open is true, the partitioner may split the dimension further, over axes that the spec does
// not use elsewhere. A closed dimension is split exactly as written.
type Dim struct {
	Axes []string
	Open bool
}

// OpenDim returns a dimension that is split over axes and that the partitioner may split further.
// It is used as an argument of [P]: P("data", sharding.OpenDim()).
func OpenDim(axes ...string) Dim { return Dim{Axes: axes, Open: true} }

// Spec describes how a tensor is split over a [Mesh]. It has a [Dim] for each tensor dimension, and
// a list of axes over which the tensor must stay replicated. It corresponds to DTensor's
// tf.experimental.dtensor.Layout. A Spec is not bound to a mesh or a shape; [Spec.Validate] checks
// it against both.
//
// A Spec is an immutable value and may be shared between goroutines. The zero Spec is the spec of a
// scalar.
type Spec struct {
	dims       []Dim
	replicated []string
	err        error
}

// P returns a closed spec with one entry for each tensor dimension: nil for an unsplit dimension,
// the name of an axis, a []string of axes with the major axis first, or a [Dim]. An entry of
// another type makes the spec invalid; [Spec.Validate] and [Spec.Err] return the error.
func P(entries ...any) Spec {
	s := Spec{dims: make([]Dim, len(entries))}
	for i, entry := range entries {
		switch entry := entry.(type) {
		case nil:
		case string:
			s.dims[i].Axes = []string{entry}
		case []string:
			s.dims[i].Axes = slices.Clone(entry)
		case Dim:
			s.dims[i] = Dim{Axes: slices.Clone(entry.Axes), Open: entry.Open}
		default:
			if s.err == nil {
				s.err = &SpecError{Problem: InvalidEntry, Dim: i,
					Hint: fmt.Sprintf("an entry is nil, a string, a []string or a sharding.Dim, not %T", entry)}
			}
		}
	}
	return s
}

// Replicated returns the spec of a tensor of the given rank that every device holds completely. All
// its dimensions are closed.
func Replicated(rank int) Spec { return Spec{dims: make([]Dim, max(rank, 0))} }

// Unconstrained returns the spec of a tensor of the given rank with all dimensions open: the
// partitioner chooses the sharding.
func Unconstrained(rank int) Spec {
	s := Replicated(rank)
	for i := range s.dims {
		s.dims[i].Open = true
	}
	return s
}

// NewSpec returns a spec with the given dimensions.
func NewSpec(dims ...Dim) Spec {
	s := Spec{dims: make([]Dim, len(dims))}
	for i, dim := range dims {
		s.dims[i] = Dim{Axes: slices.Clone(dim.Axes), Open: dim.Open}
	}
	return s
}

// WithReplicated returns a copy of the spec with axes as its explicitly replicated axes. The
// partitioner must not split open dimensions over these axes.
func (s Spec) WithReplicated(axes ...string) Spec {
	s.replicated = slices.Clone(axes)
	return s
}

// WithRank returns a copy of the spec extended to the given rank with unsplit, closed dimensions.
// It returns the spec unchanged if its rank is at least the given rank.
func (s Spec) WithRank(rank int) Spec {
	if rank > len(s.dims) {
		s.dims = append(slices.Clone(s.dims), make([]Dim, rank-len(s.dims))...)
	}
	return s
}

// WithLeading returns a copy of the spec with dims inserted before its own dimensions. This is the
// spec of tensors stacked along new leading dimensions.
func (s Spec) WithLeading(dims ...Dim) Spec {
	s.dims = append(NewSpec(dims...).dims, s.dims...)
	return s
}

// Canonical returns a copy of the spec with the explicitly replicated axes in mesh order, as Shardy
// requires. It keeps the order of the axes within a dimension, because this order determines the
// shards.
func (s Spec) Canonical(mesh Mesh) Spec {
	s.replicated = mesh.SortAxes(s.replicated)
	return s
}

// Err returns the error of an invalid argument of [P], or nil.
func (s Spec) Err() error { return s.err }

// Rank returns the number of dimensions.
func (s Spec) Rank() int { return len(s.dims) }

// Dim returns dimension i. If i is out of range, the result is an unsplit, closed dimension.
func (s Spec) Dim(i int) Dim {
	if i < 0 || i >= len(s.dims) {
		return Dim{}
	}
	return Dim{Axes: slices.Clone(s.dims[i].Axes), Open: s.dims[i].Open}
}

// Dims returns a copy of all dimensions.
func (s Spec) Dims() []Dim { return NewSpec(s.dims...).dims }

// ReplicatedAxes returns a copy of the explicitly replicated axes.
func (s Spec) ReplicatedAxes() []string { return slices.Clone(s.replicated) }

// UsedAxes returns the axes that split the dimensions, in the order of the dimensions.
func (s Spec) UsedAxes() []string {
	var axes []string
	for _, dim := range s.dims {
		axes = append(axes, dim.Axes...)
	}
	return axes
}

// IsReplicated reports whether no axis splits any dimension.
func (s Spec) IsReplicated() bool {
	return !slices.ContainsFunc(s.dims, func(d Dim) bool { return len(d.Axes) > 0 })
}

// Equal reports whether both specs have the same dimensions and the same explicitly replicated
// axes, in the same order.
func (s Spec) Equal(other Spec) bool {
	return (s.err == nil) == (other.err == nil) &&
		slices.Equal(s.replicated, other.replicated) &&
		slices.EqualFunc(s.dims, other.dims, func(a, b Dim) bool {
			return a.Open == b.Open && slices.Equal(a.Axes, b.Axes)
		})
}
