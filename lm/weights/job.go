package weights

import (
	"cmp"
	"runtime"
	"slices"
)

// copyJob copies a box of one tensor. Its axes are the dimensions in the order of the file, the
// slowest first. Axes with one index are left out unless there is no other axis.
type copyJob struct {
	tensor     string
	conversion conversion
	srcOffset  int64 // offset of the box's first element in the tensor
	dstOffset  int   // offset of that element in the result
	axes       []axis
}

// axis is one dimension of a job: the offsets of its indices in the tensor (src, ascending) and in
// the result (dst). Both are in elements, relative to the first index.
type axis struct {
	n       int
	srcStep int64
	dstStep int
	// srcOffsets and into are the offsets if they are not evenly spaced, or nil.
	srcOffsets []int64
	dstOffsets []int
}

func (a *axis) srcAt(i int) int64 {
	if a.srcOffsets != nil {
		return a.srcOffsets[i]
	}
	return int64(i) * a.srcStep
}

func (a *axis) dstAt(i int) int {
	if a.dstOffsets != nil {
		return a.dstOffsets[i]
	}
	return i * a.dstStep
}

// newCopyJob returns the job that copies the overlap of a variable's box with the box at start, or
// nil if they do not overlap. cells is the number of cells of the latter in each dimension.
func (p *Plan) newCopyJob(v *Variable, box variableBox, start, size, cells []int) (*copyJob, error) {
	form, err := newConversion(p.tensors[box.tensor].DType, v.DType, box.add)
	if err != nil {
		return nil, err
	}
	j := &copyJob{tensor: box.tensor, conversion: form, srcOffset: box.view.offset}
	stride, apart := 1, 1 // distance of neighbors in a cell, and of neighboring cells
	for d := range size {
		apart *= size[d] / cells[d]
	}
	for d := len(size) - 1; d >= 0; d-- {
		first, end := max(start[d], box.start[d]), min(start[d]+size[d], box.start[d]+box.size[d])
		if first >= end {
			return nil, nil
		}
		l := cellStride{stride: stride, cell: size[d] / cells[d], cellDistance: apart, first: first - start[d]}
		j.dstOffset += l.at(0)
		a := newAxis(box.view.dims[d], first-box.start[d], end-box.start[d], l, j)
		if a.n > 1 {
			j.axes = append(j.axes, a)
		}
		stride, apart = stride*l.cell, apart*cells[d]
	}
	// In the order of the file, the axis with the smallest step is the fastest.
	slices.SortStableFunc(j.axes, func(a, b axis) int { return cmp.Compare(b.srcStep, a.srcStep) })
	if len(j.axes) == 0 {
		j.axes = []axis{{n: 1, srcStep: 1, dstStep: 1}}
	}
	j.mergeAxes()
	return j, nil
}

// singleCell returns the numbers of cells of a box of rank n with a single cell.
func singleCell(n int) []int { return slices.Repeat([]int{1}, n) }

// cellStride describes the offsets of a dimension's indices in the result: indices in a cell are
// stride elements apart, and the cells, of cell indices each, are cellDistance elements apart. first
// is the first index.
type cellStride struct{ stride, cell, cellDistance, first int }

// at returns the offset of an index.
func (l cellStride) at(i int) int {
	i += l.first
	return i/l.cell*l.cellDistance + i%l.cell*l.stride
}

// isEven reports whether n indices are evenly spaced.
func (l cellStride) isEven(n int) bool {
	return l.first%l.cell+n <= l.cell || l.cell == 1 || l.cellDistance == l.cell*l.stride
}

// step returns the distance of evenly spaced indices.
func (l cellStride) step() int {
	if l.cell == 1 {
		return l.cellDistance
	}
	return l.stride
}

// newAxis returns the axis of a range of indices of a dimension. It moves the job's offsets to the
// first index of the axis.
func newAxis(dim []strideFactor, start, end int, l cellStride, j *copyJob) axis {
	dim = mergeFactors(dim)
	if len(dim) == 1 && l.isEven(end-start) {
		j.srcOffset += int64(start) * dim[0].stride
		return axis{n: end - start, srcStep: dim[0].stride, dstStep: l.step()}
	}
	a := axis{n: end - start, srcOffsets: dimOffsets(dim, start, end), dstOffsets: make([]int, end-start)}
	indices := make([]int, a.n)
	for i := range indices {
		indices[i] = i
	}
	if !slices.IsSorted(a.srcOffsets) {
		slices.SortFunc(indices, func(x, y int) int { return cmp.Compare(a.srcOffsets[x], a.srcOffsets[y]) })
		slices.Sort(a.srcOffsets)
	}
	firstOffset := a.srcOffsets[0]
	dstOrigin := l.at(indices[0])
	j.srcOffset, j.dstOffset = j.srcOffset+firstOffset, j.dstOffset+dstOrigin-l.at(0)
	a.srcStep = 1 << 62 // minimum distance, computed below
	for i := range indices {
		a.srcOffsets[i] -= firstOffset
		a.dstOffsets[i] = l.at(indices[i]) - dstOrigin
		if i > 0 {
			a.srcStep = min(a.srcStep, a.srcOffsets[i]-a.srcOffsets[i-1])
		}
	}
	return a
}

// dimOffsets returns the offsets of a range of indices of a dimension.
func dimOffsets(dim []strideFactor, start, end int) []int64 {
	offsets := make([]int64, end-start)
	for i := range offsets {
		rest := int64(start + i)
		for f := len(dim) - 1; f >= 0; f-- {
			offsets[i] += rest % dim[f].size * dim[f].stride
			rest /= dim[f].size
		}
	}
	return offsets
}

// mergeAxes merges the fastest axes that are contiguous in the file and in the result.
func (j *copyJob) mergeAxes() {
	for len(j.axes) > 1 {
		slow, fast := &j.axes[len(j.axes)-2], j.axes[len(j.axes)-1]
		if !fast.isEven() || !slow.isEven() || slow.srcStep != int64(fast.n)*fast.srcStep ||
			slow.dstStep != fast.n*fast.dstStep {
			return
		}
		*slow = axis{n: slow.n * fast.n, srcStep: fast.srcStep, dstStep: fast.dstStep}
		j.axes = j.axes[:len(j.axes)-1]
	}
}

// isEven reports whether the indices are evenly spaced.
func (a *axis) isEven() bool { return a.srcOffsets == nil }

// isContiguous reports whether the indices are contiguous in the file and in the result.
func (a *axis) isContiguous() bool {
	return a.isEven() && (a.n == 1 || a.srcStep == 1 && a.dstStep == 1)
}

// split divides a large job along its slowest axis, for several goroutines.
func (j *copyJob) split(bytes int) []*copyJob {
	slow := &j.axes[0]
	parts := min(slow.n, 2*runtime.GOMAXPROCS(0), bytes/minConcurrentBytes)
	if parts < 2 {
		return []*copyJob{j}
	}
	var all []*copyJob
	for i := range parts {
		start, end := i*slow.n/parts, (i+1)*slow.n/parts
		part := &copyJob{j.tensor, j.conversion, j.srcOffset + slow.srcAt(start), j.dstOffset + slow.dstAt(start),
			slices.Clone(j.axes)}
		a := &part.axes[0]
		if a.n = end - start; !a.isEven() {
			a.srcOffsets, a.dstOffsets = slices.Clone(a.srcOffsets[start:end]), slices.Clone(a.dstOffsets[start:end])
			for k := range a.srcOffsets {
				a.srcOffsets[k] -= slow.srcOffsets[start]
				a.dstOffsets[k] -= slow.dstOffsets[start]
			}
		}
		all = append(all, part)
	}
	return all
}
