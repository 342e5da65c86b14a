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
	// scratchBytes is the size of a reader's buffer for conversion and transposition.
	scratchBytes = 1 << 20
	// directBytes limits one read without conversion, so that a canceled context takes effect soon.
	directBytes = 8 << 20
	// gapBytes is the longest gap between two ranges that are read together. A separate read would
	// cost more.
	gapBytes = 256
	// concurrentBytes is the minimum size of a box that several goroutines read.
	concurrentBytes = 4 << 20
)

// scratches are reusable buffers of readers.
var scratches = sync.Pool{New: func() any {
	b := make([]byte, scratchBytes)
	return &b
}}

// Read reads a box of a variable into into, row-major, in the variable's dtype. The box begins at
// start and has the given size in each dimension. Read only reads the required ranges of the files,
// and gaps of at most 256 bytes between them. In addition to into, it uses one megabyte of memory
// for each CPU. NaNs and infinities are preserved; a finite number that would become infinite is an
// error.
//
// Errors name the file and the tensor. An invalid box is an error of kind ValueError. If ctx ends,
// Read returns its cause. After an error the contents of into are undefined.
func (p *Plan) Read(ctx context.Context, f *File, path string, start, size []int, into []byte) error {
	return p.ReadCells(ctx, f, path, start, size, ones(len(size)), into)
}

// ReadCells is like [Plan.Read], but divides the box into cells: cells is the number of cells in
// each dimension, which must divide the size. The cells are stored in into one after the other, in
// row-major order, and each cell is row-major. In this way the shards of several devices are read
// together, and a row of the file is read in one range for all of them.
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

// move reads the pieces of a box, and uses several goroutines for large boxes.
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
