package weights

import (
	"cmp"
	"runtime"
	"slices"
)

// job copies a box of one tensor. Its axes are the dimensions in the order of the file, the slowest
// first. Axes with one index are left out unless there is no other axis.
type job struct {
	tensor string
	form   form
	at     int64 // offset of the box's first element in the tensor
	place  int   // offset of that element in the result
	axes   []axis
}

// axis is one dimension of a job: the offsets of its indices in the tensor, ascending, and in the
// result. Both are in elements, relative to the first index.
type axis struct {
	n        int
	fileStep int64
	intoStep int
	// file and into are the offsets if they are not evenly spaced, or nil.
	file []int64
	into []int
}

func (a *axis) fileAt(i int) int64 {
	if a.file != nil {
		return a.file[i]
	}
	return int64(i) * a.fileStep
}

func (a *axis) intoAt(i int) int {
	if a.into != nil {
		return a.into[i]
	}
	return i * a.intoStep
}

// job returns the job for the part of a piece that is in a box, or nil if there is none. cells is
// the number of cells of the box in each dimension.
func (p *Plan) job(v *Variable, of piece, start, size, cells []int) (*job, error) {
	form, err := formOf(p.tensors[of.tensor].DType, v.DType, of.add)
	if err != nil {
		return nil, err
	}
	j := &job{tensor: of.tensor, form: form, at: of.view.offset}
	stride, apart := 1, 1 // distance of neighbors in a cell, and of neighboring cells
	for d := range size {
		apart *= size[d] / cells[d]
	}
	for d := len(size) - 1; d >= 0; d-- {
		from, to := max(start[d], of.start[d]), min(start[d]+size[d], of.start[d]+of.size[d])
		if from >= to {
			return nil, nil
		}
		l := axisStride{stride: stride, cell: size[d] / cells[d], apart: apart, first: from - start[d]}
		j.place += l.at(0)
		a := axisOf(of.view.dims[d], from-of.start[d], to-of.start[d], l, j)
		if a.n > 1 {
			j.axes = append(j.axes, a)
		}
		stride, apart = stride*l.cell, apart*cells[d]
	}
	// In the order of the file, the axis with the smallest step is the fastest.
	slices.SortStableFunc(j.axes, func(a, b axis) int { return cmp.Compare(b.fileStep, a.fileStep) })
	if len(j.axes) == 0 {
		j.axes = []axis{{n: 1, fileStep: 1, intoStep: 1}}
	}
	j.join()
	return j, nil
}

// ones returns the cells of a box with a single cell.
func ones(n int) []int { return slices.Repeat([]int{1}, n) }

// axisStride describes the offsets of a dimension's indices in the result: indices in a cell are
// stride elements apart, and cells of cell indices are apart elements apart. first is the first
// index.
type axisStride struct{ stride, cell, apart, first int }

// at returns the offset of an index.
func (l axisStride) at(i int) int {
	i += l.first
	return i/l.cell*l.apart + i%l.cell*l.stride
}

// even reports whether n indices are evenly spaced.
func (l axisStride) even(n int) bool {
	return l.first%l.cell+n <= l.cell || l.cell == 1 || l.apart == l.cell*l.stride
}

// step returns the distance of evenly spaced indices.
func (l axisStride) step() int {
	if l.cell == 1 {
		return l.apart
	}
	return l.stride
}

// axisOf returns the axis of a range of indices of a dimension. It moves the job's offsets to the
// first index of the axis.
func axisOf(dim []factor, from, to int, l axisStride, j *job) axis {
	dim = normal(dim)
	if len(dim) == 1 && l.even(to-from) {
		j.at += int64(from) * dim[0].stride
		return axis{n: to - from, fileStep: dim[0].stride, intoStep: l.step()}
	}
	a := axis{n: to - from, file: table(dim, from, to), into: make([]int, to-from)}
	indices := make([]int, a.n)
	for i := range indices {
		indices[i] = i
	}
	if !slices.IsSorted(a.file) {
		slices.SortFunc(indices, func(x, y int) int { return cmp.Compare(a.file[x], a.file[y]) })
		slices.Sort(a.file)
	}
	first := a.file[0]
	origin := l.at(indices[0])
	j.at, j.place = j.at+first, j.place+origin-l.at(0)
	a.fileStep = 1 << 62 // minimum distance, computed below
	for i := range indices {
		a.file[i] -= first
		a.into[i] = l.at(indices[i]) - origin
		if i > 0 {
			a.fileStep = min(a.fileStep, a.file[i]-a.file[i-1])
		}
	}
	return a
}

// table returns the offsets of a range of indices of a dimension.
func table(dim []factor, from, to int) []int64 {
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

// join merges the fastest axes that are contiguous in the file and in the result.
func (j *job) join() {
	for len(j.axes) > 1 {
		slow, fast := &j.axes[len(j.axes)-2], j.axes[len(j.axes)-1]
		if !fast.even() || !slow.even() || slow.fileStep != int64(fast.n)*fast.fileStep || slow.intoStep != fast.n*fast.intoStep {
			return
		}
		*slow = axis{n: slow.n * fast.n, fileStep: fast.fileStep, intoStep: fast.intoStep}
		j.axes = j.axes[:len(j.axes)-1]
	}
}

// even reports whether the indices are evenly spaced.
func (a *axis) even() bool { return a.file == nil }

// plain reports whether the indices are contiguous in the file and in the result.
func (a *axis) plain() bool { return a.even() && (a.n == 1 || a.fileStep == 1 && a.intoStep == 1) }

// split divides a large job along its slowest axis, for several goroutines.
func (j *job) split(bytes int) []*job {
	slow := &j.axes[0]
	parts := min(slow.n, 2*runtime.GOMAXPROCS(0), bytes/concurrentBytes)
	if parts < 2 {
		return []*job{j}
	}
	var all []*job
	for i := range parts {
		from, to := i*slow.n/parts, (i+1)*slow.n/parts
		one := &job{j.tensor, j.form, j.at + slow.fileAt(from), j.place + slow.intoAt(from), slices.Clone(j.axes)}
		a := &one.axes[0]
		if a.n = to - from; !a.even() {
			a.file, a.into = slices.Clone(a.file[from:to]), slices.Clone(a.into[from:to])
			for k := range a.file {
				a.file[k] -= slow.file[from]
				a.into[k] -= slow.into[from]
			}
		}
		all = append(all, one)
	}
	return all
}
