package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// region is a slice of a variable that is stored contiguously in one file of the checkpoint, in
// row-major order.
type region struct {
	start, size []int
	object      int   // index in Checkpoint.objects
	offset      int64 // offset in the object
	bytes       int64
	// sums are the checksums of the region's blocks, or nil. If only a checksum of the whole variable
	// was saved, verifyWhole computes them.
	sums []checksum
}

// blockBytes is the size in bytes of a block: the bytes of a region that share a checksum. Reads begin at a
// block and end at a block or at the end of the region.
const blockBytes = 1 << 20

func numBlocks(bytes int64) int { return int((bytes + blockBytes - 1) / blockBytes) }

// box is a slice of a variable to read, with the memory into which its bytes are copied.
type box struct {
	start, size []int
	dst         []byte
}

// runIterator iterates over the bytes that a region and a box have in common, in the order of the
// region. It groups these bytes into runs. A run is a sequence of bytes that is contiguous both in
// the region and in the box.
type runIterator struct {
	dst                     []byte
	regionOffset, dstOffset int64 // position in the current run, in the region and in dst
	remaining               int64 // bytes after the position in the current run; 0 after the last run
	end                     int64 // end of the last run, in the region

	runBytes int64 // bytes of a run
	index    []int // index of the current run in each dimension
	counts   []int // number of runs in each dimension
	// firstRegionOffset and firstDstOffset are the start of the first run. regionStrides and
	// boxStrides are the distances in bytes between runs in each dimension.
	firstRegionOffset, firstDstOffset int64
	regionStrides, boxStrides         []int64
}

// newRunIterator returns an iterator over the bytes that a region and a box have in common. element
// is the size of an element in bytes. The bool result is false if the region and the box do not
// overlap.
func newRunIterator(g *region, b box, element int64) (*runIterator, bool) {
	rank := len(g.size)
	start, size := make([]int, rank), make([]int, rank)
	for d := range rank {
		start[d] = max(g.start[d], b.start[d])
		size[d] = min(g.start[d]+g.size[d], b.start[d]+b.size[d]) - start[d]
		if size[d] <= 0 {
			return nil, false
		}
	}
	r := &runIterator{dst: b.dst, runBytes: element}
	inRegion, inBox := make([]int64, rank), make([]int64, rank)
	strideRegion, strideBox := element, element
	outer, contiguous := rank, true
	for d := rank - 1; d >= 0; d-- {
		inRegion[d], inBox[d] = strideRegion, strideBox
		r.firstRegionOffset += int64(start[d]-g.start[d]) * strideRegion
		r.firstDstOffset += int64(start[d]-b.start[d]) * strideBox
		strideRegion *= int64(g.size[d])
		strideBox *= int64(b.size[d])
		if contiguous {
			r.runBytes *= int64(size[d])
			outer = d
			contiguous = size[d] == g.size[d] && size[d] == b.size[d]
		}
	}
	r.counts, r.regionStrides, r.boxStrides, r.index = size[:outer], inRegion[:outer], inBox[:outer], make([]int, outer)
	r.end = r.firstRegionOffset + r.runBytes
	for d := range outer {
		r.end += int64(r.counts[d]-1) * r.regionStrides[d]
	}
	r.regionOffset, r.dstOffset, r.remaining = r.firstRegionOffset, r.firstDstOffset, r.runBytes
	return r, true
}

// advance skips n bytes of the current run. If no byte of the run is left, it continues with the
// next run.
func (r *runIterator) advance(n int64) {
	if r.regionOffset, r.dstOffset, r.remaining = r.regionOffset+n, r.dstOffset+n, r.remaining-n; r.remaining > 0 {
		return
	}
	for d := len(r.counts) - 1; d >= 0; d-- {
		if r.index[d]++; r.index[d] < r.counts[d] {
			r.regionOffset, r.dstOffset, r.remaining = r.firstRegionOffset, r.firstDstOffset, r.runBytes
			for e, i := range r.index {
				r.regionOffset += int64(i) * r.regionStrides[e]
				r.dstOffset += int64(i) * r.boxStrides[e]
			}
			return
		}
		r.index[d] = 0
	}
}

// sharesBlocks reports whether the runs are so short that each block of the region contains several
// runs. All blocks up to the last run must then be read.
func (r *runIterator) sharesBlocks() bool {
	return len(r.regionStrides) > 0 && r.regionStrides[len(r.regionStrides)-1] <= blockBytes && r.runBytes < blockBytes
}

// maxReadBytes is the maximum size of one read in bytes.
const maxReadBytes = 8 * blockBytes

var readBuffers = sync.Pool{New: func() any { p := make([]byte, maxReadBytes); return &p }}

// readBoxes reads slices of a variable into the memory of the boxes. It verifies the checksum of
// each block that it reads.
func (c *Checkpoint) readBoxes(ctx context.Context, v *variable, boxes ...box) error {
	if err := c.verifyWhole(ctx, v); err != nil {
		return err
	}
	for i := range v.regions {
		g := &v.regions[i]
		var runs []*runIterator
		for _, b := range boxes {
			if r, ok := newRunIterator(g, b, v.elementSize); ok {
				runs = append(runs, r)
			}
		}
		if len(runs) == 0 || g.bytes == 0 {
			continue
		}
		if err := c.readRuns(ctx, v, g, runs); err != nil {
			return err
		}
	}
	return nil
}

// readRuns reads the bytes of all iterators from one region. It reads each block of the region at
// most once.
func (c *Checkpoint) readRuns(ctx context.Context, v *variable, g *region, runs []*runIterator) error {
	maxBytes := int64(maxReadBytes)
	if c.objects[g.object].isFile.Load() {
		maxBytes = blockBytes // fits the processor's cache
	}
	for {
		first := int64(-1)
		for _, r := range runs {
			if r.remaining > 0 && (first < 0 || r.regionOffset < first) {
				first = r.regionOffset
			}
		}
		if first < 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return variableError(v.Path, "not read", "", err)
		}
		start := first / blockBytes * blockBytes
		end := min(start+blockBytes, g.bytes)
		if r := onlyRun(runs, start, end); r != nil {
			for end < g.bytes && end-start < maxReadBytes {
				next := min(end+blockBytes, g.bytes)
				if r.regionOffset+r.remaining < next || onlyRun(runs, start, next) != r {
					break
				}
				end = next
			}
			if err := c.readBlocks(ctx, v, g, r.dst[r.dstOffset:r.dstOffset+end-start], start); err != nil {
				return err
			}
			r.advance(end - start)
			continue
		}
		for end < g.bytes && end-start < maxBytes && hasSharedBlock(runs, end) {
			end = min(end+blockBytes, g.bytes)
		}
		buf := readBuffers.Get().(*[]byte)
		p := (*buf)[:end-start]
		err := c.readBlocks(ctx, v, g, p, start)
		for _, r := range runs {
			for err == nil && r.remaining > 0 && r.regionOffset < end {
				n := min(r.remaining, end-r.regionOffset)
				copy(r.dst[r.dstOffset:r.dstOffset+n], p[r.regionOffset-start:])
				r.advance(n)
			}
		}
		readBuffers.Put(buf)
		if err != nil {
			return err
		}
	}
}

// onlyRun returns the iterator whose current run contains all bytes of the region from start to
// end, so that they can be read directly into its box. It returns nil if there is no such iterator,
// or if another iterator also needs some of these bytes.
func onlyRun(runs []*runIterator, start, end int64) (only *runIterator) {
	for _, r := range runs {
		switch {
		case r.remaining == 0 || r.regionOffset >= end:
		case only != nil || r.regionOffset != start || r.regionOffset+r.remaining < end:
			return nil
		default:
			only = r
		}
	}
	return only
}

// hasSharedBlock reports whether the block at offset contains several short runs. Such runs are
// copied from a buffer.
func hasSharedBlock(runs []*runIterator, offset int64) bool {
	return slices.ContainsFunc(runs, func(r *runIterator) bool {
		return r.remaining > 0 && r.end > offset &&
			r.sharesBlocks()
	})
}

// readBlocks fills p with complete blocks of a region, starting at offset start, and verifies their
// checksums. It reads a local file block by block, so that it computes the checksum while the block
// is in the processor's cache. It reads from any other store with one request.
func (c *Checkpoint) readBlocks(ctx context.Context, v *variable, g *region, p []byte, start int64) error {
	o := c.objects[g.object]
	readSize := len(p)
	if o.isFile.Load() {
		readSize = blockBytes
	}
	for offset := 0; offset < len(p); offset += readSize {
		data := p[offset:min(offset+readSize, len(p))]
		if err := o.read(ctx, v, data, g.offset+start+int64(offset)); err != nil {
			return err
		}
		if err := c.checkBlocks(v, g, data, start+int64(offset)); err != nil {
			// A network transfer may have corrupted bytes.
			if retryErr := o.read(ctx, v, data, g.offset+start+int64(offset)); retryErr != nil {
				return retryErr
			}
			if err = c.checkBlocks(v, g, data, start+int64(offset)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkBlocks verifies the checksums of complete blocks of a region. p contains the blocks from
// offset start on. It does nothing if the region has no checksums.
func (c *Checkpoint) checkBlocks(v *variable, g *region, p []byte, start int64) error {
	for offset := 0; offset < len(p) && g.sums != nil; offset += blockBytes {
		sum := checksum(0).update(p[offset:min(offset+blockBytes, len(p))])
		if want := g.sums[int(start/blockBytes)+offset/blockBytes]; sum != want {
			return &CorruptError{File: c.objects[g.object].name, Variable: v.Path,
				Reason: fmt.Sprintf("the checksum of its bytes from %d on is %s, %s was written", start+int64(offset), sum, want)}
		}
	}
	return nil
}

// singleChecksum is the checksum of a complete variable. Checkpoints of earlier versions have it
// instead of a checksum for each block.
type singleChecksum struct {
	mu  sync.Mutex // guards region.sums, which verifyWhole computes
	sum checksum
}

// verifyWhole verifies a variable that has one checksum for all bytes. It reads the variable once
// and computes the checksums of its blocks, which later reads use.
func (c *Checkpoint) verifyWhole(ctx context.Context, v *variable) error {
	if v.wholeChecksum == nil {
		return nil
	}
	v.wholeChecksum.mu.Lock()
	defer v.wholeChecksum.mu.Unlock()
	g := &v.regions[0]
	if g.sums != nil {
		return nil
	}
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	sums, sum := []checksum{}, checksum(0)
	for offset := int64(0); offset < g.bytes; offset += maxReadBytes {
		p := (*buf)[:min(maxReadBytes, g.bytes-offset)]
		if err := c.readBlocks(ctx, v, g, p, offset); err != nil {
			return err
		}
		for block := range slices.Chunk(p, blockBytes) {
			sums, sum = append(sums, checksum(0).update(block)), sum.update(block)
		}
	}
	if sum != v.wholeChecksum.sum {
		return &CorruptError{File: c.path, Variable: v.Path,
			Reason: fmt.Sprintf("its checksum is %s, %s was written", sum, v.wholeChecksum.sum)}
	}
	g.sums = sums
	return nil
}
