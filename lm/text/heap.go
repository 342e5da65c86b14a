package text

type ordered[T any] interface{ less(T) bool }

var (
	_ ordered[mergeCandidate] = mergeCandidate(0)
	_ ordered[pairPriority]   = pairPriority{}
)

// heap is a binary heap whose least value is on top.
type heap[T ordered[T]] []T

func (q *heap[T]) push(v T) {
	h := append(*q, v)
	i := len(h) - 1
	for i > 0 && v.less(h[(i-1)/2]) {
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
		if kid+1 < len(h) && h[kid+1].less(h[kid]) {
			kid++
		}
		if kid >= len(h) || !h[kid].less(v) {
			h[i] = v
			break
		}
		h[i] = h[kid]
		i = kid
	}
	*q = h
	return top
}
