package weights

import (
	"cmp"
	"runtime"
	"slices"
)

// job moves a box of one tensor. Its axes are the dimensions in the order of the file, the slowest
// first; none has one index, but for the only one.
type job struct {
	tensor string
	form   form
	at     int64 // of the box's first element in the tensor
	place  int   // of that element in the result
	axes   []axis
}

// axis is one dimension of a job: where its indices lie in the tensor, ascending, and in the
// result, both in elements and from the first index.
type axis struct {
	n        int
	fileStep int64
	intoStep int
	// file and into are the places of a dimension whose indices are not evenly apart, or nil.
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

// job returns what of a piece lies in a box, or nil. The result has the box in cells, of which
// there are so many in each dimension.
func (p *Plan) job(v *Variable, of piece, start, size, cells []int) (*job, error) {
	form, err := formOf(p.tensors[of.tensor].DType, v.DType, of.add)
	if err != nil {
		return nil, err
	}
	j := &job{tensor: of.tensor, form: form, at: of.view.offset}
	stride, apart := 1, 1 // of neighbors in a cell, and of neighboring cells
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
	// In the order of the file, what moves least from one index to the next is the fastest.
	slices.SortStableFunc(j.axes, func(a, b axis) int { return cmp.Compare(b.fileStep, a.fileStep) })
	if len(j.axes) == 0 {
		j.axes = []axis{{n: 1, fileStep: 1, intoStep: 1}}
	}
	j.join()
	return j, nil
}

// ones are the cells of a box that is not cut.
func ones(n int) []int { return slices.Repeat([]int{1}, n) }

// axisStride says where the indices of a dimension lie in the result, from the first that is read
// on: so many of a cell a stride apart, and the cells further apart.
type axisStride struct{ stride, cell, apart, first int }

// at is the place of an index.
func (l axisStride) at(i int) int {
	i += l.first
	return i/l.cell*l.apart + i%l.cell*l.stride
}

// even says whether n indices are evenly apart: in one cell, or in cells of one, or in neighbors.
func (l axisStride) even(n int) bool {
	return l.first%l.cell+n <= l.cell || l.cell == 1 || l.apart == l.cell*l.stride
}

// step is how far apart they are then.
func (l axisStride) step() int {
	if l.cell == 1 {
		return l.apart
	}
	return l.stride
}

// axisOf is the axis of the indices from to to of a dimension. It moves the job's place to the
// axis's first index.
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
	a.fileStep = 1 << 62 // the least
	for i := range indices {
		a.file[i] -= first
		a.into[i] = l.at(indices[i]) - origin
		if i > 0 {
			a.fileStep = min(a.fileStep, a.file[i]-a.file[i-1])
		}
	}
	return a
}

// table returns the offsets of the indices from to to of a dimension.
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

// join makes one axis of the fastest ones that follow each other in the file and in the result.
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

// even says whether the indices are evenly apart.
func (a *axis) even() bool { return a.file == nil }

// plain says whether the indices are neighbors in the file and in the result.
func (a *axis) plain() bool { return a.even() && (a.n == 1 || a.fileStep == 1 && a.intoStep == 1) }

// split divides a job of much into some for several goroutines, along its slowest axis.
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
