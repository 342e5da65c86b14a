package weights

import (
	"fmt"
	"slices"
)

// view describes the location of a tensor's elements in a tensor of a file: element (i, j, ...) is
// at offset + table[0](i) + table[1](j) + ..., in elements. A dimension is a list of factors, the
// slowest first, so that the results of reshapes and transposes are views, too.
type view struct {
	offset int64
	dims   [][]factor
}

// factor is a part of a dimension: size indices, each stride elements from the next.
type factor struct{ size, stride int64 }

// wholeView returns the view of a complete tensor of a file, row-major.
func wholeView(shape []int) view {
	v := view{dims: make([][]factor, len(shape))}
	stride := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		v.dims[d] = []factor{{int64(shape[d]), stride}}
		stride *= int64(shape[d])
	}
	return v
}

func (v view) shape() []int {
	dims := make([]int, len(v.dims))
	for d := range v.dims {
		dims[d] = int(sizeOf(v.dims[d]))
	}
	return dims
}

// elements returns the number of elements of a shape.
func elements(size []int) int {
	n := 1
	for _, d := range size {
		n *= d
	}
	return n
}

func sizeOf(dim []factor) int64 {
	n := int64(1)
	for _, f := range dim {
		n *= f.size
	}
	return n
}

func (v view) apply(s Step) (view, error) {
	switch {
	case s.Reshape != nil:
		return v.reshape(s.Reshape)
	case s.Transpose != nil:
		return v.transpose(s.Transpose)
	}
	return v.cut(*s.Cut)
}

func (v view) transpose(order []int) (view, error) {
	if len(order) != len(v.dims) {
		return v, fmt.Errorf("a transpose of %d dimensions, the tensor has %d, %v", len(order), len(v.dims), v.shape())
	}
	out := view{offset: v.offset}
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

// cut selects a range of a dimension.
func (v view) cut(c Slice) (view, error) {
	if c.Dim < 0 || c.Dim >= len(v.dims) {
		return v, fmt.Errorf("a cut of dimension %d, the tensor has %d, %v", c.Dim, len(v.dims), v.shape())
	}
	size := sizeOf(v.dims[c.Dim])
	from, to, err := c.bounds(size)
	if err != nil {
		return v, err
	}
	out := view{v.offset, slices.Clone(v.dims)}
	if from == 0 && to == size {
		return out, nil
	}
	// The range must consist of complete indices of the slowest factor.
	dim := normal(v.dims[c.Dim])
	inner := size / dim[0].size
	if from%inner != 0 || to%inner != 0 {
		return v, fmt.Errorf("the cut %d:%d of dimension %d is not at a multiple of %d", from, to, c.Dim, inner)
	}
	out.offset += from / inner * dim[0].stride
	out.dims[c.Dim] = append([]factor{{(to - from) / inner, dim[0].stride}}, dim[1:]...)
	return out, nil
}

// reshape returns the same elements in the same order with other dimensions, of which one may be
// -1.
func (v view) reshape(dims []int) (view, error) {
	sizes, err := complete(dims, int64(elements(v.shape())))
	if err != nil {
		return v, fmt.Errorf("%v becomes %v: %w", v.shape(), dims, err)
	}
	var flat []factor
	for _, d := range v.dims {
		flat = append(flat, d...)
	}
	flat = normal(flat)
	out := view{offset: v.offset}
	for i := len(sizes) - 1; i >= 0; i-- { // the fastest dimension first
		var dim []factor
		for need := sizes[i]; need > 1; {
			last := flat[len(flat)-1]
			switch {
			case last.size <= need && need%last.size == 0:
				dim, flat, need = append(dim, last), flat[:len(flat)-1], need/last.size
			case last.size > need && last.size%need == 0:
				dim = append(dim, factor{need, last.stride})
				flat[len(flat)-1] = factor{last.size / need, last.stride * need}
				need = 1
			default:
				return v, fmt.Errorf("%v becomes %v: dimension %d would take parts of a row", v.shape(), dims, i)
			}
		}
		if sizes[i] == 0 {
			dim = []factor{{0, 1}}
		} else if dim == nil {
			dim = []factor{{1, 1}}
		}
		slices.Reverse(dim)
		out.dims = append(out.dims, normal(dim))
	}
	slices.Reverse(out.dims)
	return out, nil
}

// complete replaces the dimension -1 by its size.
func complete(dims []int, total int64) ([]int64, error) {
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

// normal merges factors that are contiguous in the file, and removes factors of size 1.
func normal(dim []factor) (out []factor) {
	for _, f := range dim {
		if f.size == 1 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].stride == f.stride*f.size {
			out[n-1] = factor{out[n-1].size * f.size, f.stride}
			continue
		}
		out = append(out, f)
	}
	if out == nil {
		return []factor{{1, 1}}
	}
	return out
}
