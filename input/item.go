package input

import "context"

// item is an element on its way through a pipeline: one that is there, or row number row of a
// table, which nobody has cut out yet.
type item struct {
	of  *rows // nil for an element that is there
	row int
	e   Element
}

// element cuts the row out, unless the element is there already.
func (i item) element() Element {
	if i.of == nil {
		return i.e
	}
	return i.of.at(i.row)
}

// run is the elements from an item on: n rows of a table that follow each other, or one element
// that is there.
type run struct {
	item
	n int
}

// runner is an Iterator that tells its elements as runs. Operations that only pass elements on hand
// runs on, so that a batch of rows can be cut out at once. Next and nextRun may be mixed: each takes
// the next elements.
type runner interface {
	// nextRun returns at least one element, and no more than most.
	nextRun(ctx context.Context, most int) (run, error)
}

// nextRun takes the next elements of any iterator, at least one and no more than most.
func nextRun(ctx context.Context, it Iterator, most int) (run, error) {
	if lazy, ok := it.(runner); ok {
		return lazy.nextRun(ctx, most)
	}
	e, err := it.Next(ctx)
	return run{item{e: e}, 1}, err
}

// next is Next in terms of nextRun.
func next(ctx context.Context, it runner) (Element, error) {
	r, err := it.nextRun(ctx, 1)
	if err != nil {
		return Element{}, err
	}
	return r.element(), nil
}

// appendRun appends to runs, or to the last of them if next goes on where that one ends.
func appendRun(runs []run, next run) []run {
	if n := len(runs); n > 0 && next.of != nil && runs[n-1].of == next.of && runs[n-1].row+runs[n-1].n == next.row {
		runs[n-1].n += next.n
		return runs
	}
	return append(runs, next)
}

// stackRuns stacks the n elements of at least one run on a new axis 0. Rows of one table that
// follow each other are a view of it, other rows of one table are copied once.
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
