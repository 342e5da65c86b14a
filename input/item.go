package input

import "context"

// item is an element within a pipeline: either the element elem, or row number row of a table that
// has not been sliced yet.
type item struct {
	table *rowTable // nil if elem is the element
	row   int
	elem  Element
}

// element returns elem or the row of the table.
func (i item) element() Element {
	if i.table == nil {
		return i.elem
	}
	return i.table.row(i.row)
}

// itemRange is n consecutive rows of a table that begin with the item, or a single element.
type itemRange struct {
	item
	n int
}

// rangeIterator is an Iterator that can also return its elements as ranges. Operations that do not
// change elements pass on ranges, so that a batch of rows can be sliced at once. Next and nextRange
// may be called in any order: each returns the next elements.
type rangeIterator interface {
	// nextRange returns between one and limit elements.
	nextRange(ctx context.Context, limit int) (itemRange, error)
}

// nextRange returns between one and limit elements of any iterator.
func nextRange(ctx context.Context, it Iterator, limit int) (itemRange, error) {
	if lazy, ok := it.(rangeIterator); ok {
		return lazy.nextRange(ctx, limit)
	}
	e, err := it.Next(ctx)
	return itemRange{item{elem: e}, 1}, err
}

// nextElement implements Next with nextRange.
func nextElement(ctx context.Context, it rangeIterator) (Element, error) {
	r, err := it.nextRange(ctx, 1)
	if err != nil {
		return Element{}, err
	}
	return r.element(), nil
}

// appendRange appends next to ranges, or extends the last range if next continues it.
func appendRange(runs []itemRange, next itemRange) []itemRange {
	if n := len(runs); n > 0 && next.table != nil && runs[n-1].table == next.table &&
		runs[n-1].row+runs[n-1].n == next.row {
		runs[n-1].n += next.n
		return runs
	}
	return append(runs, next)
}

// stackRanges stacks the n elements of ranges along a new axis 0. There must be at least one range.
// Consecutive rows of one table become a view of the table; other rows of one table are copied
// once.
func stackRanges(runs []itemRange, n int) (Element, error) {
	first := runs[0]
	if first.table != nil && len(runs) == 1 {
		return sliceRows(first.table.element, first.row, first.row+n)
	}
	numbers := make([]int, 0, n)
	for _, r := range runs {
		if r.table == nil || r.table != first.table {
			return joinElements(expandRanges(runs, n), true)
		}
		for i := range r.n {
			numbers = append(numbers, r.row+i)
		}
	}
	return MapNest(first.table.element, func(_ string, t Tensor) (Tensor, error) { return t.gather(numbers), nil })
}

func expandRanges(runs []itemRange, n int) []Element {
	out := make([]Element, 0, n)
	for _, r := range runs {
		for i := range r.n {
			element := r.item
			element.row += i
			out = append(out, element.element())
		}
	}
	return out
}
