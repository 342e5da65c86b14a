package input

import "context"

// lazyElement is an element that is either loaded, or a row of a table that has not been sliced yet.
type lazyElement struct {
	table  *rowTable // nil if the element is loaded
	row    int
	loaded Element
}

// element returns the loaded element, or slices its row from the table.
func (i lazyElement) element() Element {
	if i.table == nil {
		return i.loaded
	}
	return i.table.viewRow(i.row)
}

// elementRange is a range of n consecutive rows of a table, or a single loaded element.
type elementRange struct {
	lazyElement
	count int
}

// rangeIterator is an Iterator that can also return several elements at once as a range of rows.
// Operations that do not change elements pass ranges on, so that Batch can slice them in one step.
// Calls of Next and nextRange can be mixed.
type rangeIterator interface {
	// nextRange returns between one and limit elements.
	nextRange(ctx context.Context, limit int) (elementRange, error)
}

// nextRange returns between one and limit elements of any iterator.
func nextRange(ctx context.Context, it Iterator, limit int) (elementRange, error) {
	if lazy, ok := it.(rangeIterator); ok {
		return lazy.nextRange(ctx, limit)
	}
	e, err := it.Next(ctx)
	return elementRange{lazyElement{loaded: e}, 1}, err
}

// nextElement implements the Next method of an iterator by its nextRange method.
func nextElement(ctx context.Context, it rangeIterator) (Element, error) {
	r, err := it.nextRange(ctx, 1)
	if err != nil {
		return Element{}, err
	}
	return r.element(), nil
}

// appendRange appends next to ranges. If next continues the last range, it extends that range instead.
func appendRange(ranges []elementRange, next elementRange) []elementRange {
	if n := len(ranges); n > 0 && next.table != nil && ranges[n-1].table == next.table &&
		ranges[n-1].row+ranges[n-1].count == next.row {
		ranges[n-1].count += next.count
		return ranges
	}
	return append(ranges, next)
}

// stackRanges stacks the n elements of ranges along a new axis 0. There must be at least one range. If
// the elements are consecutive rows of one table, the result is a view. Other elements are copied once.
func stackRanges(ranges []elementRange, n int) (Element, error) {
	first := ranges[0]
	if first.table != nil && len(ranges) == 1 {
		return sliceRows(first.table.element, first.row, first.row+n)
	}
	numbers := make([]int, 0, n)
	for _, r := range ranges {
		if r.table == nil || r.table != first.table {
			return joinElements(expandRanges(ranges, n), true)
		}
		for i := range r.count {
			numbers = append(numbers, r.row+i)
		}
	}
	return MapNest(first.table.element, func(_ string, t Tensor) (Tensor, error) { return t.gatherRows(numbers), nil })
}

func expandRanges(ranges []elementRange, n int) []Element {
	out := make([]Element, 0, n)
	for _, r := range ranges {
		for i := range r.count {
			element := r.lazyElement
			element.row += i
			out = append(out, element.element())
		}
	}
	return out
}
