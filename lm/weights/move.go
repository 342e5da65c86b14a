package weights

import (
	"context"
	"sort"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// rowOffsets contains the offsets of one row of a copyJob. A row is a range of elements along the
// last axis.
type rowOffsets struct {
	src int64 // offset of the row's first element in the tensor
	dst int   // offset of index 0 of the last axis in the result
}

// execute reads the job's box from f into dst.
func (j *copyJob) execute(ctx context.Context, f *File, dst, scratch []byte) error {
	fast := &j.axes[len(j.axes)-1]
	if j.conversion.isCopy && fast.isContiguous() {
		return j.readDirect(ctx, f, dst)
	}
	// A row that is longer than the buffer is read in several ranges.
	for start := 0; start < fast.count; {
		room := scratchBytes / int64(j.conversion.srcBytes)
		tooLong := func(i int) bool { return fast.srcAt(start+i)-fast.srcAt(start) >= room }
		end := start + sort.Search(fast.count-start, tooLong)
		if err := j.readRange(ctx, f, dst, scratch, start, end); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// forEachRow calls visit for each row, in the order of the file.
func (j *copyJob) forEachRow(visit func(rowOffsets) error) error {
	slow := j.axes[:len(j.axes)-1]
	index := make([]int, len(slow))
	for {
		r := rowOffsets{j.srcOffset, j.dstOffset}
		for d, i := range index {
			r.src += slow[d].srcAt(i)
			r.dst += slow[d].dstAt(i)
		}
		if err := visit(r); err != nil {
			return err
		}
		d := len(slow) - 1
		for ; d >= 0; d-- {
			if index[d]++; index[d] < slow[d].count {
				break
			}
			index[d] = 0
		}
		if d < 0 {
			return nil
		}
	}
}

// readDirect reads rows directly into the result. It combines contiguous rows into one read.
func (j *copyJob) readDirect(ctx context.Context, f *File, result []byte) error {
	fast, size := &j.axes[len(j.axes)-1], int64(j.conversion.srcBytes)
	n := int64(fast.count)
	var src, length, dst int64 // pending read, in bytes
	flush := func() error {
		for length > 0 {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			part := min(length, maxDirectRead)
			if err := f.readAt(j.tensor, result[dst:dst+part], src); err != nil {
				return err
			}
			src, dst, length = src+part, dst+part, length-part
		}
		return nil
	}
	err := j.forEachRow(func(r rowOffsets) error {
		offset, dstOffset := r.src*size, int64(r.dst)*size
		if length > 0 && offset == src+length && dstOffset == dst+length {
			length += n * size
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		src, dst, length = offset, dstOffset, n*size
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// readRange reads indices start to end-1 of the last axis of all rows. It reads as many rows as fit
// into the buffer, copies them to the result, and repeats.
func (j *copyJob) readRange(ctx context.Context, f *File, result, scratch []byte, start, end int) error {
	fast := &j.axes[len(j.axes)-1]
	b := &rowBuffer{copyJob: j, ctx: ctx, file: f, fast: fast, start: start, end: end, scratch: scratch}
	b.rowSpan = fast.srcAt(end-1) - fast.srcAt(start) + 1
	b.splitRanges()
	err := j.forEachRow(func(r rowOffsets) error {
		r.src += fast.srcAt(start)
		if len(b.rows) > 0 && !b.hasRoom(r) {
			if err := b.copyRows(result); err != nil {
				return err
			}
		}
		b.rows = append(b.rows, r)
		return nil
	})
	if err != nil {
		return err
	}
	return b.copyRows(result)
}

// rowBuffer reads rows of a copyJob into a buffer and copies them to the result.
type rowBuffer struct {
	*copyJob
	ctx         context.Context
	file        *File
	fast        *axis // the last axis
	start, end  int   // range of indices of the last axis
	rowSpan     int64 // length of a row in the file, in elements
	scratch     []byte
	rows        []rowOffsets
	rowStarts   []int // offsets of the rows in the buffer, in elements
	numBuffered int64 // number of elements in the buffer
	ranges      []evenRange
}

// evenRange is a range of indices of a copyJob's last axis. Its elements are contiguous in the file
// and evenly spaced in the result.
type evenRange struct{ start, count, step int }

// splitRanges divides the indices of a row into evenRanges.
func (b *rowBuffer) splitRanges() {
	a := b.fast
	if a.isEven() && (a.srcStep == 1 || a.count == 1) {
		b.ranges = []evenRange{{b.start, b.end - b.start, a.dstStep}}
		return
	}
	for i := b.start; i < b.end; {
		s := evenRange{start: i, count: 1, step: 1}
		for k := i + 1; k < b.end && a.srcAt(k) == a.srcAt(k-1)+1; k++ {
			step := a.dstAt(k) - a.dstAt(k-1)
			if s.count == 1 {
				s.step = step
			} else if step != s.step {
				break
			}
			s.count++
		}
		b.ranges = append(b.ranges, s)
		i += s.count
	}
}

// hasRoom reports whether the row r fits into the buffer after the pending rows. It adds the last
// pending row, and a small gap between that row and r, to numBuffered.
func (b *rowBuffer) hasRoom(r rowOffsets) bool {
	last := b.rows[len(b.rows)-1]
	used := b.numBuffered + b.rowSpan
	if next := r.src - (last.src + b.rowSpan); next >= 0 && next*int64(b.conversion.srcBytes) <= maxGapBytes {
		used += next
	}
	b.numBuffered = used
	return (used+b.rowSpan)*int64(b.conversion.srcBytes) <= int64(len(b.scratch))
}

// copyRows reads the pending rows, copies them to result and empties the buffer.
func (b *rowBuffer) copyRows(result []byte) error {
	if err := context.Cause(b.ctx); err != nil {
		return err
	}
	if err := b.readRows(); err != nil {
		return err
	}
	a := b.fast
	ok := true
	for _, s := range b.ranges {
		first := int(a.srcAt(s.start) - a.srcAt(b.start))
		for r := 0; r < len(b.rows); {
			n := 1
			if b.conversion.transpose != nil && s.step != 1 {
				n = b.adjacentRows(r)
			}
			dst, i := a.dstAt(s.start), 0
			if n > 1 {
				for ; i+columnsPerBlock <= s.count; i += columnsPerBlock {
					b.conversion.transpose(result, b.rows[r].dst+dst+i*s.step, s.step, b.scratch, b.rowStarts[r:r+n], first+i)
				}
			}
			for k := r; k < r+n; k++ {
				ok = b.conversion.convert(result, b.rows[k].dst+dst+i*s.step, s.step, b.scratch, b.rowStarts[k]+first+i,
					s.count-i) && ok
			}
			r += n
		}
	}
	b.rows, b.numBuffered = b.rows[:0], 0
	if !ok {
		return fileError(b.file.locations[b.tensor].file.name, b.tensor,
			errkind.Fault{Reason: "a number is too large for the dtype of the variable", Class: errkind.ValueError,
				Hint: "make the model's variables in float32 or bfloat16"})
	}
	return nil
}

// adjacentRows returns the number of rows, beginning with row r, that can be transposed together
// because they are adjacent in the result. It returns 1 if there are too few.
func (b *rowBuffer) adjacentRows(r int) int {
	n := 1
	for ; r+n < len(b.rows) && b.rows[r+n].dst == b.rows[r].dst+n; n++ {
	}
	return max(n/rowsPerBlock*rowsPerBlock, 1)
}

// readRows reads the pending rows into the buffer. It combines rows with small gaps into one read.
func (b *rowBuffer) readRows() error {
	size := int64(b.conversion.srcBytes)
	gap := maxGapBytes / size
	b.rowStarts = b.rowStarts[:0]
	a := b.fast
	apart := a.count > 1 && a.srcStep-1 > gap // the required elements of a row are far apart
	for i := b.start + 1; i < b.end && !apart && !a.isEven(); i++ {
		apart = a.srcOffsets[i]-a.srcOffsets[i-1]-1 > gap
	}
	offset := int64(0)
	for i := 0; i < len(b.rows); {
		first, end := b.rows[i].src, b.rows[i].src+b.rowSpan
		b.rowStarts = append(b.rowStarts, int(offset))
		k := i + 1
		for ; !apart && k < len(b.rows) && b.rows[k].src >= end && b.rows[k].src-end <= gap; k++ {
			b.rowStarts = append(b.rowStarts, int(offset+b.rows[k].src-first))
			end = b.rows[k].src + b.rowSpan
		}
		if apart {
			if err := b.readSparseRow(first, offset, gap); err != nil {
				return err
			}
		} else if err := b.file.readAt(b.tensor, b.scratch[offset*size:(offset+end-first)*size], first*size); err != nil {
			return err
		}
		offset, i = offset+end-first, k
	}
	return nil
}

// readSparseRow reads the required ranges of a row that has large gaps. Gaps of at most maxGap
// elements are read, too, because another read would cost more.
func (b *rowBuffer) readSparseRow(rowStart, bufferOffset, maxGap int64) error {
	a, size := b.fast, int64(b.conversion.srcBytes)
	for i := b.start; i < b.end; {
		k := i + 1
		for k < b.end && a.srcAt(k)-a.srcAt(k-1)-1 <= maxGap {
			k++
		}
		start, end := a.srcAt(i)-a.srcAt(b.start), a.srcAt(k-1)-a.srcAt(b.start)+1
		dst := b.scratch[(bufferOffset+start)*size : (bufferOffset+end)*size]
		if err := b.file.readAt(b.tensor, dst, (rowStart+start)*size); err != nil {
			return err
		}
		i = k
	}
	return nil
}
