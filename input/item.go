package input

import "context"

// item is an element within a pipeline: either the element e, or row number row of a table that has
// not been sliced yet.
type item struct {
	of  *rows // nil if the element is e
	row int
	e   Element
}

// element returns the element, and slices the row if necessary.
func (i item) element() Element {
	if i.of == nil {
		return i.e
	}
	return i.of.at(i.row)
}

// run is n consecutive rows of a table beginning with the item, or a single element.
type run struct {
	item
	n int
}

// runner is an Iterator that can also return its elements as runs. Operations that pass elements on
// unchanged pass on runs, so that a batch of rows can be sliced at once. Next and nextRun may be
// called in any order: each returns the next elements.
type runner interface {
	// nextRun returns between one and most elements.
	nextRun(ctx context.Context, most int) (run, error)
}

// nextRun returns between one and most elements of any iterator.
func nextRun(ctx context.Context, it Iterator, most int) (run, error) {
	if lazy, ok := it.(runner); ok {
		return lazy.nextRun(ctx, most)
	}
	e, err := it.Next(ctx)
	return run{item{e: e}, 1}, err
}

// next implements Next with nextRun.
func next(ctx context.Context, it runner) (Element, error) {
	r, err := it.nextRun(ctx, 1)
	if err != nil {
		return Element{}, err
	}
	return r.element(), nil
}

// appendRun appends next to runs, or extends the last run if next continues it.
func appendRun(runs []run, next run) []run {
	if n := len(runs); n > 0 && next.of != nil && runs[n-1].of == next.of && runs[n-1].row+runs[n-1].n == next.row {
		runs[n-1].n += next.n
		return runs
	}
	return append(runs, next)
}

// stackRuns stacks the n elements of runs along a new axis 0. There must be at least one run.
// Consecutive rows of one table become a view of the table; other rows of one table are copied
// once.
func stackRuns(runs []run, n int) (Element, error) {
	first := runs[0]
	if first.of != nil && len(runs) == 1 {
		return rowRange(first.of.of, first.row, first.row+n)
	}
	numbers := make([]int, 0, n)
	for _, r := range runs {
		if r.of == nil || r.of != first.of {
			return joinElements(elementsOf(runs, n), true)
		}
		for i := range r.n {
			numbers = append(numbers, r.row+i)
		}
	}
	return MapNest(first.of.of, func(_ string, t Tensor) (Tensor, error) { return t.gather(numbers), nil })
}

func elementsOf(runs []run, n int) []Element {
	out := make([]Element, 0, n)
	for _, r := range runs {
		for i := range r.n {
			one := r.item
			one.row += i
			out = append(out, one.element())
		}
	}
	return out
}
