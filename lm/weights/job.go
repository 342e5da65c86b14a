package weights

import (
	"cmp"
	"runtime"
	"slices"
)

// copyJob copies a box of one tensor. Its axes are the dimensions in the order of the file, the slowest
// first. Axes with one index are left out unless there is no other axis.
type copyJob struct {
	tensor     string
	conversion conversion
	srcOffset  int64 // offset of the box's first element in the tensor
	dstOffset  int   // offset of that element in the result
	axes       []axis
}

// axis is one dimension of a job: the offsets of its indices in the tensor, ascending, and in the
// result. Both are in elements, relative to the first index.
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

// newCopyJob returns the job for the part of a piece that is in a box, or nil if there is none. cells is
// the number of cells of the box in each dimension.
func (p *Plan) newCopyJob(v *Variable, of variableBox, start, size, cells []int) (*copyJob, error) {
	form, err := newConversion(p.tensors[of.tensor].DType, v.DType, of.add)
	if err != nil {
		return nil, err
	}
	j := &copyJob{tensor: of.tensor, conversion: form, srcOffset: of.view.offset}
	stride, apart := 1, 1 // distance of neighbors in a cell, and of neighboring cells
	for d := range size {
		apart *= size[d] / cells[d]
	}
	for d := len(size) - 1; d >= 0; d-- {
		from, to := max(start[d], of.start[d]), min(start[d]+size[d], of.start[d]+of.size[d])
		if from >= to {
			return nil, nil
		}
		l := cellStride{stride: stride, cell: size[d] / cells[d], cellDistance: apart, first: from - start[d]}
		j.dstOffset += l.at(0)
		a := newAxis(of.view.dims[d], from-of.start[d], to-of.start[d], l, j)
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

// singleCell returns the cells of a box with a single cell.
func singleCell(n int) []int { return slices.Repeat([]int{1}, n) }

// cellStride describes the offsets of a dimension's indices in the result: indices in a cell are
// stride elements apart, and cells of cell indices are apart elements apart. first is the first
// index.
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
func newAxis(dim []strideFactor, from, to int, l cellStride, j *copyJob) axis {
	dim = mergeFactors(dim)
	if len(dim) == 1 && l.isEven(to-from) {
		j.srcOffset += int64(from) * dim[0].stride
		return axis{n: to - from, srcStep: dim[0].stride, dstStep: l.step()}
	}
	a := axis{n: to - from, srcOffsets: dimOffsets(dim, from, to), dstOffsets: make([]int, to-from)}
	indices := make([]int, a.n)
	for i := range indices {
		indices[i] = i
	}
	if !slices.IsSorted(a.srcOffsets) {
		slices.SortFunc(indices, func(x, y int) int { return cmp.Compare(a.srcOffsets[x], a.srcOffsets[y]) })
		slices.Sort(a.srcOffsets)
	}
	first := a.srcOffsets[0]
	origin := l.at(indices[0])
	j.srcOffset, j.dstOffset = j.srcOffset+first, j.dstOffset+origin-l.at(0)
	a.srcStep = 1 << 62 // minimum distance, computed below
	for i := range indices {
		a.srcOffsets[i] -= first
		a.dstOffsets[i] = l.at(indices[i]) - origin
		if i > 0 {
			a.srcStep = min(a.srcStep, a.srcOffsets[i]-a.srcOffsets[i-1])
		}
	}
	return a
}

// dimOffsets returns the offsets of a range of indices of a dimension.
func dimOffsets(dim []strideFactor, from, to int) []int64 {
	offsets := make([]int64, to-from)
	for i := range offsets {
		rest := int64(from + i)
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
		if !fast.isEven() || !slow.isEven() || slow.srcStep != int64(fast.n)*fast.srcStep || slow.dstStep != fast.n*fast.dstStep {
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
		from, to := i*slow.n/parts, (i+1)*slow.n/parts
		one := &copyJob{j.tensor, j.conversion, j.srcOffset + slow.srcAt(from), j.dstOffset + slow.dstAt(from), slices.Clone(j.axes)}
		a := &one.axes[0]
		if a.n = to - from; !a.isEven() {
			a.srcOffsets, a.dstOffsets = slices.Clone(a.srcOffsets[from:to]), slices.Clone(a.dstOffsets[from:to])
			for k := range a.srcOffsets {
				a.srcOffsets[k] -= slow.srcOffsets[from]
				a.dstOffsets[k] -= slow.dstOffsets[from]
			}
		}
		all = append(all, one)
	}
	return all
}
