package weights

import (
	"context"
	"sort"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// row is one pass over a job's fastest axis.
type row struct {
	file int64 // offset of the first element in the tensor
	into int   // base offset in the result
}

// run reads the job's box into a result.
func (j *job) run(ctx context.Context, f *File, into, scratch []byte) error {
	fast := &j.axes[len(j.axes)-1]
	if j.form.same && fast.plain() {
		return j.direct(ctx, f, into)
	}
	// A row that is longer than the buffer is read in several ranges.
	for from := 0; from < fast.n; {
		room := scratchBytes / int64(j.form.from)
		to := from + sort.Search(fast.n-from, func(i int) bool { return fast.fileAt(from+i)-fast.fileAt(from) >= room })
		if err := j.stripe(ctx, f, into, scratch, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// rows calls use for each row, in the order of the file.
func (j *job) rows(use func(row) error) error {
	slow := j.axes[:len(j.axes)-1]
	index := make([]int, len(slow))
	for {
		r := row{j.at, j.place}
		for d, i := range index {
			r.file += slow[d].fileAt(i)
			r.into += slow[d].intoAt(i)
		}
		if err := use(r); err != nil {
			return err
		}
		d := len(slow) - 1
		for ; d >= 0; d-- {
			if index[d]++; index[d] < slow[d].n {
				break
			}
			index[d] = 0
		}
		if d < 0 {
			return nil
		}
	}
}

// direct reads rows directly into the result, and reads contiguous rows together.
func (j *job) direct(ctx context.Context, f *File, into []byte) error {
	fast, size := &j.axes[len(j.axes)-1], int64(j.form.from)
	n := int64(fast.n)
	var from, length, to int64 // pending read, in bytes
	flush := func() error {
		for length > 0 {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			part := min(length, directBytes)
			if err := f.readAt(j.tensor, into[to:to+part], from); err != nil {
				return err
			}
			from, to, length = from+part, to+part, length-part
		}
		return nil
	}
	err := j.rows(func(r row) error {
		at, place := r.file*size, int64(r.into)*size
		if length > 0 && at == from+length && place == to+length {
			length += n * size
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		from, to, length = at, place, n*size
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// stripe reads a range of the fastest axis of all rows: it repeatedly reads as many rows as fit
// into the buffer, and moves them to the result.
func (j *job) stripe(ctx context.Context, f *File, into, scratch []byte, from, to int) error {
	fast := &j.axes[len(j.axes)-1]
	b := &block{job: j, ctx: ctx, file: f, fast: fast, from: from, to: to, scratch: scratch}
	b.span = fast.fileAt(to-1) - fast.fileAt(from) + 1
	b.stretches()
	err := j.rows(func(r row) error {
		r.file += fast.fileAt(from)
		if len(b.rows) > 0 && !b.fits(r) {
			if err := b.move(into); err != nil {
				return err
			}
		}
		b.rows = append(b.rows, r)
		return nil
	})
	if err != nil {
		return err
	}
	return b.move(into)
}

// block is the rows that are in the buffer at a time: one contiguous range of the file, or separate
// rows.
type block struct {
	*job
	ctx      context.Context
	file     *File
	fast     *axis
	from, to int   // range of the fastest axis
	span     int64 // length of a row in the file, in elements
	scratch  []byte
	rows     []row
	starts   []int // offsets of the rows in the buffer, in elements
	used     int64 // used part of the buffer, in elements
	runs     []stretch
}

// stretch is a range of the fastest axis whose indices are contiguous in the file and evenly spaced
// in the result.
type stretch struct{ from, n, step int }

// stretches divides the range of the fastest axis into runs.
func (b *block) stretches() {
	a := b.fast
	if a.even() && (a.fileStep == 1 || a.n == 1) {
		b.runs = []stretch{{b.from, b.to - b.from, a.intoStep}}
		return
	}
	for i := b.from; i < b.to; {
		s := stretch{from: i, n: 1, step: 1}
		for k := i + 1; k < b.to && a.fileAt(k) == a.fileAt(k-1)+1; k++ {
			step := a.intoAt(k) - a.intoAt(k-1)
			if s.n == 1 {
				s.step = step
			} else if step != s.step {
				break
			}
			s.n++
		}
		b.runs = append(b.runs, s)
		i += s.n
	}
}

// fits reports whether the buffer has room for another row.
func (b *block) fits(r row) bool {
	last := b.rows[len(b.rows)-1]
	used := b.used + b.span
	if next := r.file - (last.file + b.span); next >= 0 && next*int64(b.form.from) <= gapBytes {
		used += next
	}
	b.used = used
	return (used+b.span)*int64(b.form.from) <= int64(len(b.scratch))
}

// move reads the rows and copies them to the result.
func (b *block) move(result []byte) error {
	if err := context.Cause(b.ctx); err != nil {
		return err
	}
	if err := b.read(); err != nil {
		return err
	}
	a := b.fast
	ok := true
	for _, s := range b.runs {
		from := int(a.fileAt(s.from) - a.fileAt(b.from))
		for r := 0; r < len(b.rows); {
			n := 1
			if b.form.turn != nil && s.step != 1 {
				n = b.neighbours(r)
			}
			into, i := a.intoAt(s.from), 0
			if n > 1 {
				for ; i+turnColumns <= s.n; i += turnColumns {
					b.form.turn(result, b.rows[r].into+into+i*s.step, s.step, b.scratch, b.starts[r:r+n], from+i)
				}
			}
			for k := r; k < r+n; k++ {
				ok = b.form.move(result, b.rows[k].into+into+i*s.step, s.step, b.scratch, b.starts[k]+from+i, s.n-i) && ok
			}
			r += n
		}
	}
	b.rows, b.used = b.rows[:0], 0
	if !ok {
		return inFile(b.file.places[b.tensor].part.name, b.tensor, errkind.Fault{Reason: "a number is too large for the dtype of the variable", Class: errkind.ValueError,
			Hint: "make the model's variables in float32 or bfloat16"})
	}
	return nil
}

// neighbors returns the number of rows from r on that can be transposed together, because they are
// contiguous in the result; 1 if there are too few.
func (b *block) neighbours(r int) int {
	n := 1
	for ; r+n < len(b.rows) && b.rows[r+n].into == b.rows[r].into+n; n++ {
	}
	return max(n/turnRows*turnRows, 1)
}

// read reads the rows, rows with small gaps between them together, and stores the offset of each
// row.
func (b *block) read() error {
	size := int64(b.form.from)
	gap := gapBytes / size
	b.starts = b.starts[:0]
	a := b.fast
	apart := a.n > 1 && a.fileStep-1 > gap // the required elements of a row are far apart
	for i := b.from + 1; i < b.to && !apart && !a.even(); i++ {
		apart = a.file[i]-a.file[i-1]-1 > gap
	}
	at := int64(0)
	for i := 0; i < len(b.rows); {
		first, end := b.rows[i].file, b.rows[i].file+b.span
		b.starts = append(b.starts, int(at))
		k := i + 1
		for ; !apart && k < len(b.rows) && b.rows[k].file >= end && b.rows[k].file-end <= gap; k++ {
			b.starts = append(b.starts, int(at+b.rows[k].file-first))
			end = b.rows[k].file + b.span
		}
		if apart {
			if err := b.readApart(first, at, gap); err != nil {
				return err
			}
		} else if err := b.file.readAt(b.tensor, b.scratch[at*size:(at+end-first)*size], first*size); err != nil {
			return err
		}
		at, i = at+end-first, k
	}
	return nil
}

// readApart reads the separate ranges of a row.
func (b *block) readApart(first, at, gap int64) error {
	a, size := b.fast, int64(b.form.from)
	for i := b.from; i < b.to; {
		k := i + 1
		for k < b.to && a.fileAt(k)-a.fileAt(k-1)-1 <= gap {
			k++
		}
		from, to := a.fileAt(i)-a.fileAt(b.from), a.fileAt(k-1)-a.fileAt(b.from)+1
		if err := b.file.readAt(b.tensor, b.scratch[(at+from)*size:(at+to)*size], (first+from)*size); err != nil {
			return err
		}
		i = k
	}
	return nil
}
