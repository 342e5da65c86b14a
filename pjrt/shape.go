package pjrt

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxRank is the maximum rank of a tensor. The C code stores layouts of this size on its stack.
const maxRank = 64

// shape is an immutable element type with dimensions. Callers receive intDims, which is a copy of
// dims, so that they cannot modify dims.
type shape struct {
	dtype     DType
	dims      []int64
	intDims   []int
	hostBytes int // size in host memory
}

func newShape(dtype DType, dims []int) (*shape, error) {
	if dtype.Bits() == 0 {
		return nil, fmt.Errorf("element type %v has no representation in host memory", dtype)
	}
	if len(dims) > maxRank {
		return nil, fmt.Errorf("rank %d is larger than the limit of %d", len(dims), maxRank)
	}
	s := &shape{dtype: dtype, dims: make([]int64, len(dims)), intDims: slices.Clone(dims), hostBytes: dtype.HostBytes()}
	for i, d := range dims {
		if d < 0 {
			return nil, fmt.Errorf("dimension %d is negative: %d", i, d)
		}
		s.dims[i] = int64(d)
	}
	if slices.Contains(dims, 0) {
		s.hostBytes = 0
		return s, nil
	}
	for _, d := range dims {
		if d > math.MaxInt/s.hostBytes {
			return nil, fmt.Errorf("%v%v is larger than the address space", dtype, dims)
		}
		s.hostBytes *= d
	}
	return s, nil
}

// newShapeInt64 is like newShape, but also accepts element types that are not supported in host
// memory. Plugins can report such types for the parameters and results of a program, although no
// Buffer has such a type.
func newShapeInt64(dtype DType, dims []int64) *shape {
	view := make([]int, len(dims))
	for i, d := range dims {
		view[i] = int(d)
	}
	if s, err := newShape(dtype, view); err == nil {
		return s
	}
	return &shape{dtype: dtype, dims: slices.Clone(dims), intDims: view}
}

// accepts reports whether a buffer of shape other can be the argument for a parameter of shape s.
// The shapes must be equal. However, two shapes without elements only need equal ranks: XLA's
// partitioner does not split empty results, so a step may return the unsharded shape although the
// next step expects the shape of a shard.
func (s *shape) accepts(other *shape) bool {
	return s.equal(other) || s.dtype == other.dtype && len(s.dims) == len(other.dims) && slices.Contains(s.dims, 0) &&
		slices.Contains(other.dims, 0)
}

func (s *shape) equal(o *shape) bool {
	return s == o || s.dtype == o.dtype && slices.Equal(s.dims, o.dims)
}

// matches reports whether s has the given element type and dimensions.
func (s *shape) matches(dtype DType, dims []int) bool {
	if s.dtype != dtype || len(s.dims) != len(dims) {
		return false
	}
	for i, d := range dims {
		if s.dims[i] != int64(d) {
			return false
		}
	}
	return true
}

// String returns a description such as F32[2,8].
func (s *shape) String() string {
	var b strings.Builder
	b.WriteString(s.dtype.String())
	b.WriteByte('[')
	for i, d := range s.dims {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, d)
	}
	b.WriteByte(']')
	return b.String()
}
