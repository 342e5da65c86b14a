package weights

import (
	"fmt"
	"slices"
)

// stridedView describes a sliced, transposed or reshaped view of a tensor without copying elements.
// Each dimension is a product of factors, the slowest first, so that any reshaped view can be
// described. The element with index (i, j, ...) is at offset + o(dims[0], i) + o(dims[1], j) + ...,
// in elements, where o(dim, i) is the offset that dimOffsets returns for index i.
type stridedView struct {
	offset int64
	dims   [][]strideFactor
}

// strideFactor is one factor of a dimension of a stridedView. Its size indices are stride elements
// apart.
type strideFactor struct{ size, stride int64 }

// contiguousView returns a view of a complete row-major tensor.
func contiguousView(shape []int) stridedView {
	v := stridedView{dims: make([][]strideFactor, len(shape))}
	stride := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		v.dims[d] = []strideFactor{{int64(shape[d]), stride}}
		stride *= int64(shape[d])
	}
	return v
}

func (v stridedView) shape() []int {
	dims := make([]int, len(v.dims))
	for d := range v.dims {
		dims[d] = int(dimSize(v.dims[d]))
	}
	return dims
}

func numElements(size []int) int {
	n := 1
	for _, d := range size {
		n *= d
	}
	return n
}

func dimSize(dim []strideFactor) int64 {
	n := int64(1)
	for _, f := range dim {
		n *= f.size
	}
	return n
}

func (v stridedView) applyStep(s Step) (stridedView, error) {
	switch {
	case s.Reshape != nil:
		return v.reshape(s.Reshape)
	case s.Transpose != nil:
		return v.transpose(s.Transpose)
	}
	return v.slice(*s.Slice)
}

func (v stridedView) transpose(order []int) (stridedView, error) {
	if len(order) != len(v.dims) {
		return v, fmt.Errorf("a transpose of %d dimensions, the tensor has %d, %v", len(order), len(v.dims), v.shape())
	}
	out := stridedView{offset: v.offset}
	seen := make([]bool, len(order))
	for _, d := range order {
		if d < 0 || d >= len(order) || seen[d] {
			return v, fmt.Errorf("the transpose %v is no order of %d dimensions", order, len(order))
		}
		seen[d] = true
		out.dims = append(out.dims, v.dims[d])
	}
	return out, nil
}

func (v stridedView) slice(c Slice) (stridedView, error) {
	if c.Dim < 0 || c.Dim >= len(v.dims) {
		return v, fmt.Errorf("a slice of dimension %d; the tensor has %d dimensions, %v", c.Dim, len(v.dims), v.shape())
	}
	size := dimSize(v.dims[c.Dim])
	start, end, err := c.bounds(size)
	if err != nil {
		return v, err
	}
	out := stridedView{v.offset, slices.Clone(v.dims)}
	if start == 0 && end == size {
		return out, nil
	}
	// The range must consist of complete indices of the slowest factor.
	dim := mergeFactors(v.dims[c.Dim])
	inner := size / dim[0].size
	if start%inner != 0 || end%inner != 0 {
		return v, fmt.Errorf("the slice %d:%d of dimension %d is not at a multiple of %d", start, end, c.Dim, inner)
	}
	out.offset += start / inner * dim[0].stride
	out.dims[c.Dim] = append([]strideFactor{{(end - start) / inner, dim[0].stride}}, dim[1:]...)
	return out, nil
}

// reshape returns a view of the same elements, in the same order, with other dimensions. One of
// them may be -1.
func (v stridedView) reshape(dims []int) (stridedView, error) {
	sizes, err := resolveReshape(dims, int64(numElements(v.shape())))
	if err != nil {
		return v, fmt.Errorf("%v becomes %v: %w", v.shape(), dims, err)
	}
	var flat []strideFactor
	for _, d := range v.dims {
		flat = append(flat, d...)
	}
	flat = mergeFactors(flat)
	out := stridedView{offset: v.offset}
	for i := len(sizes) - 1; i >= 0; i-- { // the fastest dimension first
		var dim []strideFactor
		for need := sizes[i]; need > 1; {
			last := flat[len(flat)-1]
			switch {
			case last.size <= need && need%last.size == 0:
				dim, flat, need = append(dim, last), flat[:len(flat)-1], need/last.size
			case last.size > need && last.size%need == 0:
				dim = append(dim, strideFactor{need, last.stride})
				flat[len(flat)-1] = strideFactor{last.size / need, last.stride * need}
				need = 1
			default:
				return v, fmt.Errorf("%v becomes %v: dimension %d would split rows that are not contiguous", v.shape(), dims, i)
			}
		}
		if sizes[i] == 0 {
			dim = []strideFactor{{0, 1}}
		} else if dim == nil {
			dim = []strideFactor{{1, 1}}
		}
		slices.Reverse(dim)
		out.dims = append(out.dims, mergeFactors(dim))
	}
	slices.Reverse(out.dims)
	return out, nil
}

// resolveReshape replaces a dimension of -1 with its size.
func resolveReshape(dims []int, total int64) ([]int64, error) {
	sizes, open, known := make([]int64, len(dims)), -1, int64(1)
	for i, d := range dims {
		switch {
		case d == -1 && open < 0:
			open = i
		case d < 0:
			return nil, fmt.Errorf("dimension %d is %d", i, d)
		default:
			if sizes[i] = int64(d); d > 0 && known > total/int64(d) && total > 0 {
				return nil, fmt.Errorf("it has %d elements", total)
			}
			known *= int64(d)
		}
	}
	if open >= 0 {
		if known == 0 || total%known != 0 {
			return nil, fmt.Errorf("%d elements do not divide by %d", total, known)
		}
		sizes[open], known = total/known, total
	}
	if known != total {
		return nil, fmt.Errorf("%d elements are not %d", total, known)
	}
	return sizes, nil
}

// mergeFactors merges factors of a dimension that are contiguous in the file, and removes factors
// of size 1.
func mergeFactors(dim []strideFactor) (out []strideFactor) {
	for _, f := range dim {
		if f.size == 1 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].stride == f.stride*f.size {
			out[n-1] = strideFactor{out[n-1].size * f.size, f.stride}
			continue
		}
		out = append(out, f)
	}
	if out == nil {
		return []strideFactor{{1, 1}}
	}
	return out
}
