package pjrt

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxRank bounds the rank of a tensor, as the C side keeps layouts on its stack.
const maxRank = 64

// shape is a checked element type and dimensions. It is never changed; view is what callers see, so
// that a caller who writes to it harms no check.
type shape struct {
	dtype DType
	dims  []int64
	view  []int
	bytes int // row-major in host memory
}

func newShape(dtype DType, dims []int) (*shape, error) {
	if dtype.Bits() == 0 {
		return nil, fmt.Errorf("element type %v cannot be held in host memory", dtype)
	}
	if len(dims) > maxRank {
		return nil, fmt.Errorf("rank %d is over the limit of %d", len(dims), maxRank)
	}
	s := &shape{dtype: dtype, dims: make([]int64, len(dims)), view: slices.Clone(dims), bytes: dtype.HostBytes()}
	for i, d := range dims {
		if d < 0 {
			return nil, fmt.Errorf("dimension %d is negative: %d", i, d)
		}
		s.dims[i] = int64(d)
	}
	if slices.Contains(dims, 0) {
		s.bytes = 0
		return s, nil
	}
	for i, d := range dims {
		if d > math.MaxInt/s.bytes {
			return nil, fmt.Errorf("%v%v overflows the address space at dimension %d", dtype, dims, i)
		}
		s.bytes *= d
	}
	return s, nil
}

// shapeOf64 is newShape for what a plugin or a program says. Types without host memory are allowed:
// they only can not be compared with a buffer's.
func shapeOf64(dtype DType, dims []int64) *shape {
	view := make([]int, len(dims))
	for i, d := range dims {
		view[i] = int(d)
	}
	if s, err := newShape(dtype, view); err == nil {
		return s
	}
	return &shape{dtype: dtype, dims: slices.Clone(dims), view: view}
}

// accepts reports whether a program with a parameter of this shape accepts a buffer of another one.
// XLA's partitioner does not split results without elements, so that a step's result has the shape
// of the whole tensor where the next step expects that of a part. Neither shape has bytes.
func (s *shape) accepts(other *shape) bool {
	return s.equal(other) || s.dtype == other.dtype && len(s.dims) == len(other.dims) && slices.Contains(s.dims, 0) && slices.Contains(other.dims, 0)
}

func (s *shape) equal(o *shape) bool {
	return s == o || s.dtype == o.dtype && slices.Equal(s.dims, o.dims)
}

// is says whether newShape would make s of these.
func (s *shape) is(dtype DType, dims []int) bool {
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

// String is such as F32[2,8].
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
