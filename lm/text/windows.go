package text

import (
	"context"
	"io"
	"math/bits"

	"github.com/tpustrategy/tpustrategy/input"
)

// WindowOptions configures the order of windows. The zero value has seed 0 and a different random
// order in each pass.
type WindowOptions struct {
	Seed    uint64
	InOrder bool // use the order of the texts in every pass; Seed must be 0
}

// Windows returns a dataset of training examples. An element is one tensor, int32[length+1]: a model
// reads the first length tokens and predicts the last length tokens. Each window begins with the last
// token of the previous window, so each token is predicted at most once per pass. The last Targets()
// modulo length tokens are omitted. If the tokens do not fill one window, the error is a ValueError.
//
// Each pass yields each window once, in a random order that depends only on the seed and the pass. The
// order is a pseudorandom permutation that needs no memory. The saved position is one number, so a
// restore reads no data again.
//
// Every process has all tokens in memory. input.Distribute divides the batches between processes, so
// all processes together use each window once.
func (t *Tokens) Windows(length int, opts WindowOptions) (input.Dataset, error) {
	if err := checkLength("windows", length); err != nil {
		return input.Dataset{}, err
	}
	if opts.InOrder && opts.Seed != 0 {
		return input.Dataset{}, valueError("windows", "leave one of them out", "the seed %d for windows in order", opts.Seed)
	}
	if t.Targets() < length {
		return input.Dataset{}, valueError("windows", "give shorter windows or longer texts",
			"windows of %d tokens and the token after them, of texts of %d tokens", length, t.numTokens)
	}
	return input.New(&windowSource{tokens: t, op: "windows", length: length, numWindows: t.Targets() / length,
		opts: opts}), nil
}

// EvalWindows returns a dataset of windows for evaluation, in the order of the texts. An element is
// a tuple of two tensors: the tokens int32[length+1], as in [Tokens.Windows], and the weights
// float32[length] of the predicted tokens. Each token except the first is predicted with weight 1
// in exactly one window, so the sum of the weights is [Tokens.Targets]. The last window is padded
// with separators of weight 0. Windows of weight 0 are added until the number of windows is a
// multiple of batch, so Batch(batch, true) drops no window.
func (t *Tokens) EvalWindows(length, batch int) (input.Dataset, error) {
	if err := checkLength("held-out windows", length); err != nil {
		return input.Dataset{}, err
	}
	if batch < 1 {
		return input.Dataset{}, valueError("held-out windows", "give at least 1", "batches of %d windows", batch)
	}
	if batch > 1<<30 {
		return input.Dataset{}, valueError("held-out windows", "give a batch that a step takes", "batches of %d windows",
			batch)
	}
	n := (t.Targets() + length - 1) / length
	n = (n + batch - 1) / batch * batch
	return input.New(&windowSource{tokens: t, op: "held-out windows", length: length, numWindows: n,
		opts: WindowOptions{InOrder: true}, hasWeights: true}), nil
}

func checkLength(op string, length int) error {
	if length < 1 || length > 1<<30 {
		return valueError(op, "give the number of tokens that the model reads at once, from 1", "windows of %d tokens",
			length)
	}
	return nil
}

type windowSource struct {
	tokens             *Tokens
	op                 string
	length, numWindows int
	opts               WindowOptions
	hasWeights         bool
}

func (w *windowSource) Info() input.Info {
	spec := input.Leaf(input.TensorSpec{Kind: input.Int32, Dims: []int{w.length + 1}})
	if w.hasWeights {
		spec = input.Tuple(spec, input.Leaf(input.TensorSpec{Kind: input.Float32, Dims: []int{w.length}}))
	}
	return input.Info{Spec: spec, Cardinality: input.Cardinality(w.numWindows)}
}

// fingerprint returns a checksum of the texts, the tokenizer and the order. It is saved with each
// position, to detect positions of other datasets.
func (w *windowSource) fingerprint() int64 {
	tokens := uint64(w.tokens.checksum)<<32 ^ uint64(uint32(w.tokens.numTokens))
	return int64(splitMix64(tokens^splitMix64(w.opts.Seed+1)) >> 1)
}

func (w *windowSource) Open(_ context.Context, pass input.Pass, start input.State) (input.Iterator, error) {
	it := &windowIterator{windowSource: w, order: permutation{n: uint64(w.numWindows),
		key: splitMix64(w.opts.Seed) ^ splitMix64(pass.Epoch+0x51ed270b)}}
	if start.IsZero() {
		return it, nil
	}
	if start.Op != w.op || len(start.Counters) != 4 || len(start.Inputs) != 0 {
		return nil, stateError("it is no position of %s", w.op)
	}
	if start.Counters[1] != int64(w.numWindows) || start.Counters[2] != int64(w.length) {
		return nil, stateError("it is of %d windows of %d tokens, these are %d of %d", start.Counters[1], start.Counters[2],
			w.numWindows, w.length)
	}
	if start.Counters[3] != w.fingerprint() {
		return nil, stateError("it is of other texts or tokens, or of another seed")
	}
	if start.Counters[0] < 0 || start.Counters[0] > int64(w.numWindows) {
		return nil, stateError("window %d of %d", start.Counters[0], w.numWindows)
	}
	it.pos = int(start.Counters[0])
	return it, nil
}

type windowIterator struct {
	*windowSource
	order permutation
	pos   int
}

func (it *windowIterator) Next(ctx context.Context) (input.Element, error) {
	if err := ctx.Err(); err != nil {
		return input.Element{}, err
	}
	if it.pos >= it.numWindows {
		return input.Element{}, io.EOF
	}
	i := it.pos
	if !it.opts.InOrder {
		i = int(it.order.apply(uint64(i)))
	}
	it.pos++
	return it.windowElement(i)
}

func (w *windowSource) windowElement(i int) (input.Element, error) {
	ids := make([]int32, w.length+1)
	got := w.tokens.Read(ids, i*w.length)
	for k := got; k < len(ids); k++ {
		ids[k] = w.tokens.separator
	}
	tokens, err := input.NewTensor(ids, len(ids))
	if err != nil || !w.hasWeights {
		return input.Leaf(tokens), err
	}
	values := make([]float32, w.length)
	for k := range min(max(got-1, 0), w.length) {
		values[k] = 1
	}
	weights, err := input.NewTensor(values, len(values))
	return input.Tuple(input.Leaf(tokens), input.Leaf(weights)), err
}

func (it *windowIterator) State() (input.State, error) {
	counters := []int64{int64(it.pos), int64(it.numWindows), int64(it.length), it.fingerprint()}
	return input.State{Op: it.op, Counters: counters}, nil
}

func (*windowIterator) Close() error { return nil }

// permutation is a pseudorandom permutation of 0 to n-1. It is a Feistel network over an even
// number of bits, which is applied repeatedly until the result is below n.
type permutation struct{ n, key uint64 }

func (p permutation) apply(i uint64) uint64 {
	half := (bits.Len64(p.n-1) + 1) / 2
	if half == 0 {
		return i
	}
	mask := uint64(1)<<half - 1
	for {
		left, right := i>>half, i&mask
		for round := range uint64(6) {
			left, right = right, left^splitMix64(right+p.key+round*0x9e3779b97f4a7c15)&mask
		}
		if i = left<<half | right; i < p.n {
			return i
		}
	}
}
