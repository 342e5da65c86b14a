package text

// ranked values have an order.
type ranked[T any] interface{ before(T) bool }

var (
	_ ranked[place]    = place(0)
	_ ranked[heapPair] = heapPair{}
)

// heap is a binary heap. The first value in the order is on top.
type heap[T ranked[T]] []T

func (q *heap[T]) push(v T) {
	h := append(*q, v)
	i := len(h) - 1
	for i > 0 && v.before(h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = v
	*q = h
}

func (q *heap[T]) pop() T {
	h := *q
	top, v := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	for i := 0; len(h) > 0; {
		kid := 2*i + 1
		if kid+1 < len(h) && h[kid+1].before(h[kid]) {
			kid++
		}
		if kid >= len(h) || !h[kid].before(v) {
			h[i] = v
			break
		}
		h[i] = h[kid]
		i = kid
	}
	*q = h
	return top
}
