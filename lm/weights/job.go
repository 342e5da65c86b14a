package weights

import (
	"cmp"
	"runtime"
	"slices"
)

// copyJob copies a box (rectangular range) of one tensor's elements. The axes are sorted by their
// step in the file, the largest first. Dimensions of size 1 are omitted, but there is at least one
// axis.
type copyJob struct {
	tensor     string
	conversion conversion
	srcOffset  int64 // offset of the box's first element in the tensor
	dstOffset  int   // offset of the same element in the result
	axes       []axis
}

// axis is one dimension of a copyJob. For each index it specifies an element's offset in the tensor
// (src, ascending) and in the result (dst). Both are in elements, relative to the first index.
type axis struct {
	count   int
	srcStep int64
	dstStep int
	// srcOffsets and dstOffsets are the offsets if they are not evenly spaced, or nil.
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

// newCopyJob returns a job that copies the elements of box, which one tensor fills, as far as they
// are also in the requested box. start, size and cells describe the requested box, as in
// [Plan.ReadCells]. newCopyJob returns nil if the two boxes do not intersect.
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
		l := cellLayout{stride: stride, cellSize: size[d] / cells[d], cellStride: apart, firstIndex: first - start[d]}
		j.dstOffset += l.offsetAt(0)
		a := newAxis(box.view.dims[d], first-box.start[d], end-box.start[d], l, j)
		if a.count > 1 {
			j.axes = append(j.axes, a)
		}
		stride, apart = stride*l.cellSize, apart*cells[d]
	}
	// In the order of the file, the axis with the smallest step is the fastest.
	slices.SortStableFunc(j.axes, func(a, b axis) int { return cmp.Compare(b.srcStep, a.srcStep) })
	if len(j.axes) == 0 {
		j.axes = []axis{{count: 1, srcStep: 1, dstStep: 1}}
	}
	j.mergeAxes()
	return j, nil
}

// singleCell returns n ones: the number of cells in each dimension of a box that is not divided.
func singleCell(n int) []int { return slices.Repeat([]int{1}, n) }

// cellLayout maps the indices of a dimension to offsets in a result that is divided into cells.
// Each cell has cellSize indices, whose offsets differ by stride. The offsets of adjacent cells
// differ by cellStride.
type cellLayout struct{ stride, cellSize, cellStride, firstIndex int }

// offsetAt returns the offset of index firstIndex+i.
func (l cellLayout) offsetAt(i int) int {
	i += l.firstIndex
	return i/l.cellSize*l.cellStride + i%l.cellSize*l.stride
}

// isEven reports whether the offsets of the first n indices are evenly spaced.
func (l cellLayout) isEven(n int) bool {
	return l.firstIndex%l.cellSize+n <= l.cellSize || l.cellSize == 1 || l.cellStride == l.cellSize*l.stride
}

// evenStep returns the distance between the offsets of adjacent indices. Call it only if isEven
// returns true.
func (l cellLayout) evenStep() int {
	if l.cellSize == 1 {
		return l.cellStride
	}
	return l.stride
}

// newAxis returns an axis of the job j for the indices start to end-1 of a dimension. It adds the
// offset of the first index to the offsets of j.
func newAxis(dim []strideFactor, start, end int, l cellLayout, j *copyJob) axis {
	dim = mergeFactors(dim)
	if len(dim) == 1 && l.isEven(end-start) {
		j.srcOffset += int64(start) * dim[0].stride
		return axis{count: end - start, srcStep: dim[0].stride, dstStep: l.evenStep()}
	}
	a := axis{count: end - start, srcOffsets: dimOffsets(dim, start, end), dstOffsets: make([]int, end-start)}
	indices := make([]int, a.count)
	for i := range indices {
		indices[i] = i
	}
	if !slices.IsSorted(a.srcOffsets) {
		slices.SortFunc(indices, func(x, y int) int { return cmp.Compare(a.srcOffsets[x], a.srcOffsets[y]) })
		slices.Sort(a.srcOffsets)
	}
	firstOffset := a.srcOffsets[0]
	dstOrigin := l.offsetAt(indices[0])
	j.srcOffset, j.dstOffset = j.srcOffset+firstOffset, j.dstOffset+dstOrigin-l.offsetAt(0)
	a.srcStep = 1 << 62 // minimum distance, computed below
	for i := range indices {
		a.srcOffsets[i] -= firstOffset
		a.dstOffsets[i] = l.offsetAt(indices[i]) - dstOrigin
		if i > 0 {
			a.srcStep = min(a.srcStep, a.srcOffsets[i]-a.srcOffsets[i-1])
		}
	}
	return a
}

// dimOffsets returns the offset of each index from start to end-1 of a dimension.
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

// mergeAxes merges the last axes of the job as long as they are contiguous in the file and in the
// result.
func (j *copyJob) mergeAxes() {
	for len(j.axes) > 1 {
		slow, fast := &j.axes[len(j.axes)-2], j.axes[len(j.axes)-1]
		if !fast.isEven() || !slow.isEven() || slow.srcStep != int64(fast.count)*fast.srcStep ||
			slow.dstStep != fast.count*fast.dstStep {
			return
		}
		*slow = axis{count: slow.count * fast.count, srcStep: fast.srcStep, dstStep: fast.dstStep}
		j.axes = j.axes[:len(j.axes)-1]
	}
}

// isEven reports whether the offsets of the elements along the axis are evenly spaced.
func (a *axis) isEven() bool { return a.srcOffsets == nil }

// isContiguous reports whether the elements along the axis are contiguous in the file and in the
// result.
func (a *axis) isContiguous() bool {
	return a.isEven() && (a.count == 1 || a.srcStep == 1 && a.dstStep == 1)
}

// splitConcurrent divides a large job along its first axis into jobs for several goroutines.
func (j *copyJob) splitConcurrent(bytes int) []*copyJob {
	slow := &j.axes[0]
	parts := min(slow.count, 2*runtime.GOMAXPROCS(0), bytes/minConcurrentBytes)
	if parts < 2 {
		return []*copyJob{j}
	}
	var all []*copyJob
	for i := range parts {
		start, end := i*slow.count/parts, (i+1)*slow.count/parts
		part := &copyJob{j.tensor, j.conversion, j.srcOffset + slow.srcAt(start), j.dstOffset + slow.dstAt(start),
			slices.Clone(j.axes)}
		a := &part.axes[0]
		if a.count = end - start; !a.isEven() {
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
