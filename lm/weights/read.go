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
	// scratchBytes is the size of a goroutine's buffer for conversion and transposition.
	scratchBytes = 1 << 20
	// maxDirectRead limits one read without conversion, so that cancellation takes effect soon.
	maxDirectRead = 8 << 20
	// maxGapBytes is the longest gap between two ranges that are read together. Two separate reads
	// would cost more than reading the gap.
	maxGapBytes = 256
	// minConcurrentBytes is the minimum size of a box that several goroutines read.
	minConcurrentBytes = 4 << 20
)

var scratchPool = sync.Pool{New: func() any {
	b := make([]byte, scratchBytes)
	return &b
}}

// Read reads a box, which is a rectangular range of a variable's elements, into dst. The elements
// are row-major, in the variable's dtype. The box begins at start and has the given size in each
// dimension. Read only reads the required ranges of the files, and gaps of at most 256 bytes
// between them. In addition to dst, it uses one megabyte of memory for each CPU. NaNs and
// infinities are preserved. A finite number that would become infinite is an error.
//
// Errors name the file and the tensor. An invalid box is an error of kind ValueError. If ctx ends, Read
// returns its cause. After an error the contents of dst are undefined.
func (p *Plan) Read(ctx context.Context, f *File, path string, start, size []int, dst []byte) error {
	return p.ReadCells(ctx, f, path, start, size, singleCell(len(size)), dst)
}

// ReadCells reads a box like [Plan.Read], but divides it into cells of equal size, such as the
// shards of several devices. cells contains the number of cells in each dimension. dst receives the
// cells one after the other, in row-major order, and the elements of each cell are row-major. Each
// row of the file is read only once, even if its elements are in several cells.
func (p *Plan) ReadCells(ctx context.Context, f *File, path string, start, size, cells []int, dst []byte) error {
	i := slices.IndexFunc(p.variables, func(v variablePlan) bool { return v.Path == path })
	if i < 0 {
		return &errkind.Fault{Op: "weights: read", Subject: fmt.Sprintf("variable %q", path), Reason: "no tensor fills it",
			Class: errkind.ValueError}
	}
	v := &p.variables[i]
	bytes := int(v.DType.Size())
	ok := len(start) == len(v.Shape) && len(size) == len(v.Shape) && len(cells) == len(v.Shape)
	for d := 0; ok && d < len(size); d++ {
		ok = start[d] >= 0 && size[d] >= 0 && size[d] <= v.Shape[d]-start[d] && cells[d] > 0 && size[d]%cells[d] == 0
		bytes *= size[d]
	}
	if !ok || len(dst) != bytes {
		return &errkind.Fault{Op: "weights: read", Subject: fmt.Sprintf("variable %q", path), Class: errkind.ValueError,
			Reason: fmt.Sprintf("%d bytes for %v from %v of %s%v, in %v cells", len(dst), size, start, v.DType, v.Shape, cells)}
	}
	if bytes == 0 {
		return nil
	}
	if err := p.readBox(ctx, f, v, start, size, cells, dst); err != nil {
		return err
	}
	checked := map[*weightFile]bool{}
	for _, piece := range v.boxes {
		file := f.locations[piece.tensor].file
		if file == nil || checked[file] {
			continue
		}
		checked[file] = true
		if err := file.checkUnchanged(); err != nil {
			return err
		}
	}
	return nil
}

// readBox reads a box of a variable from its tensors. It reads large boxes with several goroutines.
func (p *Plan) readBox(ctx context.Context, f *File, v *variablePlan, start, size, cells []int, dst []byte) error {
	bytes := len(dst)
	var jobs []*copyJob
	for _, piece := range v.boxes {
		j, err := p.newCopyJob(&v.Variable, piece, start, size, cells)
		if err != nil {
			return err
		}
		if j != nil {
			jobs = append(jobs, j.splitConcurrent(bytes)...)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1)
	if bytes >= minConcurrentBytes {
		group.SetLimit(runtime.GOMAXPROCS(0))
	}
	for _, j := range jobs {
		group.Go(func() error {
			scratch := scratchPool.Get().(*[]byte)
			defer scratchPool.Put(scratch)
			return j.execute(ctx, f, dst, *scratch)
		})
	}
	return group.Wait()
}
