package weights

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
)

const (
	// scratchBytes is what a reader holds of a file while it converts and transposes.
	scratchBytes = 1 << 20
	// directBytes bounds one read of what needs no conversion, so that a context ends it soon.
	directBytes = 8 << 20
	// gapBytes is the longest stretch that is read and thrown away between two that are needed: a
	// read of its own costs more.
	gapBytes = 256
	// concurrentBytes is from when on a box is read by several goroutines.
	concurrentBytes = 4 << 20
)

// scratches are what readers leave for others.
var scratches = sync.Pool{New: func() any {
	b := make([]byte, scratchBytes)
	return &b
}}

// Read fills into with a box of a variable, row-major, in the variable's dtype: the elements from
// start on, size of them in each dimension. It reads only the ranges of the files that the box
// needs; gaps of at most 256 bytes between them are read too. Besides into it holds a megabyte for
// each CPU. NaNs and infinities are kept; a finite number that the variable's dtype does not have
// is an error.
//
// Errors name the file and the tensor; of kind ValueError for a box that is none, and the cause of ctx's end.
// After an error into has undefined contents.
func (p *Plan) Read(ctx context.Context, f *File, path string, start, size []int, into []byte) error {
	return p.ReadCells(ctx, f, path, start, size, ones(len(size)), into)
}

// ReadCells is Read of a box that is cut into cells, so many in each dimension, which lie in into
// one after the other: the cells in row-major order, and row-major in themselves. What several
// devices hold of a variable is read so at once: a row of the file is one range for all of them.
// Each size is a multiple of the number of cells.
func (p *Plan) ReadCells(ctx context.Context, f *File, path string, start, size, cells []int, into []byte) error {
	i := slices.IndexFunc(p.variables, func(v filled) bool { return v.Path == path })
	if i < 0 {
		return &errkind.Fault{Op: "weights: read", Subject: fmt.Sprintf("variable %q", path), Reason: "no tensor fills it", Class: errkind.ValueError}
	}
	v := &p.variables[i]
	bytes := int(v.DType.Size())
	ok := len(start) == len(v.Shape) && len(size) == len(v.Shape) && len(cells) == len(v.Shape)
	for d := 0; ok && d < len(size); d++ {
		ok = start[d] >= 0 && size[d] >= 0 && size[d] <= v.Shape[d]-start[d] && cells[d] > 0 && size[d]%cells[d] == 0
		bytes *= size[d]
	}
	if !ok || len(into) != bytes {
		return &errkind.Fault{Op: "weights: read", Subject: fmt.Sprintf("variable %q", path), Class: errkind.ValueError,
			Reason: fmt.Sprintf("%d bytes for %v from %v of %s%v, in %v cells", len(into), size, start, v.DType, v.Shape, cells)}
	}
	if bytes == 0 {
		return nil
	}
	if err := p.move(ctx, f, v, start, size, cells, into); err != nil {
		return err
	}
	checked := map[*part]bool{}
	for _, piece := range v.pieces {
		of := f.places[piece.tensor].part
		if of == nil || checked[of] {
			continue
		}
		checked[of] = true
		if err := of.check(); err != nil {
			return err
		}
	}
	return nil
}

// move reads the pieces of a box: those of much by several goroutines.
func (p *Plan) move(ctx context.Context, f *File, v *filled, start, size, cells []int, into []byte) error {
	bytes := len(into)
	var jobs []*job
	for _, piece := range v.pieces {
		j, err := p.job(&v.Variable, piece, start, size, cells)
		if err != nil {
			return err
		}
		if j != nil {
			jobs = append(jobs, j.split(bytes)...)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1)
	if bytes >= concurrentBytes {
		group.SetLimit(runtime.GOMAXPROCS(0))
	}
	for _, j := range jobs {
		group.Go(func() error {
			scratch := scratches.Get().(*[]byte)
			defer scratches.Put(scratch)
			return j.run(ctx, f, into, *scratch)
		})
	}
	return group.Wait()
}
