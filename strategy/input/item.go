package input

import "context"

// item is an element on its way through a pipeline: one that is there, or row number row of a table, which nobody has
// cut out yet. Operations that only pass elements on hand items on, so that a batch of rows can be cut out at once.
type item struct {
	of  *rows // nil for an element that is there
	row int
	e   Element
}

// itemizer is an Iterator that tells its elements as items. Next and nextItem may be mixed: each takes the next element.
type itemizer interface {
	nextItem(ctx context.Context) (item, error)
}

// nextItem takes the next element of any iterator.
func nextItem(ctx context.Context, it Iterator) (item, error) {
	if lazy, ok := it.(itemizer); ok {
		return lazy.nextItem(ctx)
	}
	e, err := it.Next(ctx)
	return item{e: e}, err
}

// element cuts the row out, unless the element is there already.
func (i item) element() Element {
	if i.of == nil {
		return i.e
	}
	return i.of.at(i.row)
}

// whole is Next in terms of nextItem.
func whole(i item, err error) (Element, error) {
	if err != nil {
		return Element{}, err
	}
	return i.element(), nil
}

// stackItems stacks at least one item on a new axis 0. Rows of one table that follow each other are a view of it, other
// rows of one table are copied once.
func stackItems(items []item) (Element, error) {
	first, together := items[0], true
	for i, it := range items {
		if it.of == nil || it.of != first.of {
			return joinElements(elementsOf(items), true)
		}
		together = together && it.row == first.row+i
	}
	if together {
		return rowRange(first.of.of, first.row, first.row+len(items))
	}
	numbers := make([]int, len(items))
	for i, it := range items {
		numbers[i] = it.row
	}
	return MapNest(first.of.of, func(_ string, t Tensor) (Tensor, error) { return t.gather(numbers), nil })
}

func elementsOf(items []item) []Element {
	out := make([]Element, len(items))
	for i, it := range items {
		out[i] = it.element()
	}
	return out
}
