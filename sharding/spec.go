package sharding

import (
	"fmt"
	"slices"
)

// Dim says how one tensor dimension is split: over Axes, the major axis first. A dimension without
// axes that is not Open stays whole on every device.
//
// Open lets the partitioner split the dimension further, over axes that the spec does not use
// elsewhere. A closed dimension is split exactly as written.
type Dim struct {
	Axes []string
	Open bool
}

// Open returns a dimension that the partitioner may split further, for use in [P]: P("data",
// sharding.Open()).
func Open(axes ...string) Dim { return Dim{Axes: axes, Open: true} }

// Spec says how a tensor is laid over a [Mesh]: a [Dim] for each tensor dimension, and the axes
// over which the tensor must stay replicated. It corresponds to DTensor's
// tf.experimental.dtensor.Layout. A spec fits every tensor of its rank, on every mesh that has its
// axes.
//
// A Spec is an immutable value that may be shared between goroutines. The zero Spec is that of a
// scalar.
type Spec struct {
	dims       []Dim
	replicated []string
	err        error
}

// P returns a closed spec from one part for each tensor dimension: nil for a dimension that stays
// whole, the name of an axis, a []string of axes with the major axis first, or a [Dim]. A part of
// another type makes the spec invalid; [Spec.Validate] and [Spec.Err] return the error.
func P(parts ...any) Spec {
	s := Spec{dims: make([]Dim, len(parts))}
	for i, part := range parts {
		switch part := part.(type) {
		case nil:
		case string:
			s.dims[i].Axes = []string{part}
		case []string:
			s.dims[i].Axes = slices.Clone(part)
		case Dim:
			s.dims[i] = Dim{Axes: slices.Clone(part.Axes), Open: part.Open}
		default:
			if s.err == nil {
				s.err = &SpecError{Problem: BadPart, Dim: i,
					Hint: fmt.Sprintf("a part is nil, a string, a []string or a sharding.Dim, not %T", part)}
			}
		}
	}
	return s
}

// Replicated returns the spec, of the given rank, of a tensor that every device holds whole. Its
// dimensions are closed.
func Replicated(rank int) Spec { return Spec{dims: make([]Dim, max(rank, 0))} }

// Unconstrained returns the spec, of the given rank, that leaves all dimensions to the partitioner.
func Unconstrained(rank int) Spec {
	s := Replicated(rank)
	for i := range s.dims {
		s.dims[i].Open = true
	}
	return s
}

// NewSpec returns the spec with the given dimensions.
func NewSpec(dims ...Dim) Spec {
	s := Spec{dims: make([]Dim, len(dims))}
	for i, dim := range dims {
		s.dims[i] = Dim{Axes: slices.Clone(dim.Axes), Open: dim.Open}
	}
	return s
}

// WithReplicated returns a copy of the spec whose explicitly replicated axes are the given ones.
// The partitioner must not split open dimensions over these axes.
func (s Spec) WithReplicated(axes ...string) Spec {
	s.replicated = slices.Clone(axes)
	return s
}

// WithRank returns a copy of the spec with whole, closed dimensions appended until it has the given
// rank. It returns a spec of that rank or more unchanged.
func (s Spec) WithRank(rank int) Spec {
	if rank > len(s.dims) {
		s.dims = append(slices.Clone(s.dims), make([]Dim, rank-len(s.dims))...)
	}
	return s
}

// WithLeading returns a copy of the spec with dims before its own dimensions, as for tensors that
// are stacked along new leading dimensions.
func (s Spec) WithLeading(dims ...Dim) Spec {
	s.dims = append(NewSpec(dims...).dims, s.dims...)
	return s
}

// Canonical returns a copy of the spec whose explicitly replicated axes are in the order of the
// mesh, as Shardy demands. The order of the axes within a dimension has a meaning and is kept.
func (s Spec) Canonical(mesh Mesh) Spec {
	s.replicated = mesh.SortAxes(s.replicated)
	return s
}

// Err returns the error of the parts that [P] was given, or nil.
func (s Spec) Err() error { return s.err }

// Rank returns the number of dimensions.
func (s Spec) Rank() int { return len(s.dims) }

// Dim returns dimension i. A dimension beyond the rank is whole and closed.
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

// UsedAxes returns the axes that split some dimension, in the order of the dimensions.
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

// Equal reports whether both specs have the same dimensions and the same replicated axes, in the
// same order.
func (s Spec) Equal(other Spec) bool {
	return (s.err == nil) == (other.err == nil) &&
		slices.Equal(s.replicated, other.replicated) &&
		slices.EqualFunc(s.dims, other.dims, func(a, b Dim) bool {
			return a.Open == b.Open && slices.Equal(a.Axes, b.Axes)
		})
}
