package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// region is a box of a variable that is stored contiguously in row-major order in an object of the
// checkpoint.
type region struct {
	start, size []int
	object      int   // in Checkpoint.objects
	offset      int64 // in the object
	bytes       int64
	// sums are the checksums of the blocks. They are nil if there are none. If only the checksum of
	// the whole variable was saved, they are nil until that was verified.
	sums []checksum
}

// blockBytes is the number of bytes per checksum of a region. Reads are multiples of it.
const blockBytes = 1 << 20

func blocks(bytes int64) int { return int((bytes + blockBytes - 1) / blockBytes) }

// box is a box of a variable and the destination of its bytes.
type box struct {
	start, size []int
	into        []byte
}

// runs iterates over the contiguous byte runs that a region and a box have in common, in the order
// of the region.
type runs struct {
	into   []byte
	at, to int64 // rest of the current run, in the region and in into
	n      int64 // bytes of the rest; 0 after the last run
	end    int64 // end of the last run, in the region

	run    int64 // bytes of a run
	index  []int
	counts []int
	// firstAt and firstTo are the start of the first run. inRegion and inBox are the strides of the
	// runs in each dimension.
	firstAt, firstTo int64
	inRegion, inBox  []int64
}

// runsOf returns the runs of a box in a region. It reports false if they do not overlap.
func runsOf(g *region, b box, element int64) (*runs, bool) {
	rank := len(g.size)
	from, common := make([]int, rank), make([]int, rank)
	for d := range rank {
		from[d] = max(g.start[d], b.start[d])
		common[d] = min(g.start[d]+g.size[d], b.start[d]+b.size[d]) - from[d]
		if common[d] <= 0 {
			return nil, false
		}
	}
	r := &runs{into: b.into, run: element}
	inRegion, inBox := make([]int64, rank), make([]int64, rank)
	strideRegion, strideBox := element, element
	outer, whole := rank, true
	for d := rank - 1; d >= 0; d-- {
		inRegion[d], inBox[d] = strideRegion, strideBox
		r.firstAt += int64(from[d]-g.start[d]) * strideRegion
		r.firstTo += int64(from[d]-b.start[d]) * strideBox
		strideRegion *= int64(g.size[d])
		strideBox *= int64(b.size[d])
		if whole {
			r.run *= int64(common[d])
			outer = d
			whole = common[d] == g.size[d] && common[d] == b.size[d]
		}
	}
	r.counts, r.inRegion, r.inBox, r.index = common[:outer], inRegion[:outer], inBox[:outer], make([]int, outer)
	r.end = r.firstAt + r.run
	for d := range outer {
		r.end += int64(r.counts[d]-1) * r.inRegion[d]
	}
	r.at, r.to, r.n = r.firstAt, r.firstTo, r.run
	return r, true
}

// took advances the current run by n bytes.
func (r *runs) took(n int64) {
	if r.at, r.to, r.n = r.at+n, r.to+n, r.n-n; r.n > 0 {
		return
	}
	for d := len(r.counts) - 1; d >= 0; d-- {
		if r.index[d]++; r.index[d] < r.counts[d] {
			r.at, r.to, r.n = r.firstAt, r.firstTo, r.run
			for e, i := range r.index {
				r.at += int64(i) * r.inRegion[e]
				r.to += int64(i) * r.inBox[e]
			}
			return
		}
		r.index[d] = 0
	}
}

// short reports whether blocks contain several runs, so that all blocks up to the end are read.
func (r *runs) short() bool {
	return len(r.inRegion) > 0 && r.inRegion[len(r.inRegion)-1] <= blockBytes && r.run < blockBytes
}

// aheadBytes is the maximum size of one read.
const aheadBytes = 8 * blockBytes

var aheadMemory = sync.Pool{New: func() any { p := make([]byte, aheadBytes); return &p }}

// fill reads boxes of a variable and verifies the checksums of the blocks.
func (c *Checkpoint) fill(ctx context.Context, v *variable, boxes ...box) error {
	if err := c.compareWhole(ctx, v); err != nil {
		return err
	}
	for i := range v.regions {
		g := &v.regions[i]
		var all []*runs
		for _, b := range boxes {
			if r, ok := runsOf(g, b, v.element); ok {
				all = append(all, r)
			}
		}
		if len(all) == 0 || g.bytes == 0 {
			continue
		}
		if err := c.fillFrom(ctx, v, g, all); err != nil {
			return err
		}
	}
	return nil
}

// fillFrom reads runs of one region, block by block.
func (c *Checkpoint) fillFrom(ctx context.Context, v *variable, g *region, all []*runs) error {
	ahead := int64(aheadBytes)
	if c.objects[g.object].file.Load() {
		ahead = blockBytes // fits the processor's cache
	}
	for {
		first := int64(-1)
		for _, r := range all {
			if r.n > 0 && (first < 0 || r.at < first) {
				first = r.at
			}
		}
		if first < 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return faultOf(v.Path, "not read", "", err)
		}
		start := first / blockBytes * blockBytes
		end := min(start+blockBytes, g.bytes)
		if r := alone(all, start, end); r != nil {
			for end < g.bytes && end-start < aheadBytes {
				next := min(end+blockBytes, g.bytes)
				if r.at+r.n < next || alone(all, start, next) != r {
					break
				}
				end = next
			}
			if err := c.blocks(ctx, v, g, r.into[r.to:r.to+end-start], start); err != nil {
				return err
			}
			r.took(end - start)
			continue
		}
		for end < g.bytes && end-start < ahead && continues(all, end) {
			end = min(end+blockBytes, g.bytes)
		}
		memory := aheadMemory.Get().(*[]byte)
		p := (*memory)[:end-start]
		err := c.blocks(ctx, v, g, p, start)
		for _, r := range all {
			for err == nil && r.n > 0 && r.at < end {
				n := min(r.n, end-r.at)
				copy(r.into[r.to:r.to+n], p[r.at-start:])
				r.took(n)
			}
		}
		aheadMemory.Put(memory)
		if err != nil {
			return err
		}
	}
}

// alone returns the element of all whose current run contains all bytes from start to end, if no
// other element has any of them.
func alone(all []*runs, start, end int64) (one *runs) {
	for _, r := range all {
		switch {
		case r.n == 0 || r.at >= end:
		case one != nil || r.at != start || r.at+r.n < end:
			return nil
		default:
			one = r
		}
	}
	return one
}

// continues reports whether the block at a position is also read through a temporary buffer.
func continues(all []*runs, at int64) bool {
	return slices.ContainsFunc(all, func(r *runs) bool { return r.n > 0 && r.end > at && r.short() })
}

// blocks reads complete blocks of a region, beginning at start. It reads a file one block at a
// time, so that the checksum is computed while the block is in the processor's cache, and other
// objects at once.
func (c *Checkpoint) blocks(ctx context.Context, v *variable, g *region, p []byte, start int64) error {
	o := c.objects[g.object]
	piece := len(p)
	if o.file.Load() {
		piece = blockBytes
	}
	for from := 0; from < len(p); from += piece {
		part := p[from:min(from+piece, len(p))]
		if err := o.read(ctx, v, part, g.offset+start+int64(from)); err != nil {
			return err
		}
		if err := c.compare(v, g, part, start+int64(from)); err != nil {
			// A network transfer may have corrupted bytes.
			if again := o.read(ctx, v, part, g.offset+start+int64(from)); again != nil {
				return again
			}
			if err = c.compare(v, g, part, start+int64(from)); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare verifies the checksums of blocks.
func (c *Checkpoint) compare(v *variable, g *region, p []byte, start int64) error {
	for at := 0; at < len(p) && g.sums != nil; at += blockBytes {
		sum := checksum(0).plus(p[at:min(at+blockBytes, len(p))])
		if want := g.sums[int(start/blockBytes)+at/blockBytes]; sum != want {
			return &CorruptError{File: c.objects[g.object].name, Variable: v.Path,
				Reason: fmt.Sprintf("the checksum of its bytes from %d on is %s, %s was written", start+int64(at), sum, want)}
		}
	}
	return nil
}

// wholeSum is the checksum of a variable without block checksums.
type wholeSum struct {
	mu  sync.Mutex // guards the sums of the variable's region until they are known
	sum checksum
}

// compareWhole reads a variable with a single checksum once, verifies it, and computes the
// checksums of its blocks for later reads.
func (c *Checkpoint) compareWhole(ctx context.Context, v *variable) error {
	if v.whole == nil {
		return nil
	}
	v.whole.mu.Lock()
	defer v.whole.mu.Unlock()
	g := &v.regions[0]
	if g.sums != nil {
		return nil
	}
	memory := aheadMemory.Get().(*[]byte)
	defer aheadMemory.Put(memory)
	sums, whole := []checksum{}, checksum(0)
	for at := int64(0); at < g.bytes; at += aheadBytes {
		p := (*memory)[:min(aheadBytes, g.bytes-at)]
		if err := c.blocks(ctx, v, g, p, at); err != nil {
			return err
		}
		for block := range slices.Chunk(p, blockBytes) {
			sums, whole = append(sums, checksum(0).plus(block)), whole.plus(block)
		}
	}
	if whole != v.whole.sum {
		return &CorruptError{File: c.path, Variable: v.Path, Reason: fmt.Sprintf("its checksum is %s, %s was written", whole, v.whole.sum)}
	}
	g.sums = sums
	return nil
}
