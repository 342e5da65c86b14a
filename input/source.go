package input

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

type memorySource struct {
	op        string
	count     int
	spec      Spec
	elementAt func(i int) lazyElement
	// table contains element i as its row i. It may be nil.
	table *rowTable
}

func (s memorySource) Info() Info { return Info{Spec: s.spec, Cardinality: Cardinality(s.count)} }

func (s memorySource) Open(_ context.Context, _ Pass, start State) (Iterator, error) {
	start, err := start.forOp(s.op, 1, 0)
	if err != nil {
		return nil, err
	}
	if start.Counters[0] > int64(s.count) {
		return nil, stateError("element %d of %d", start.Counters[0], s.count)
	}
	return &memoryIterator{memorySource: s, pos: int(start.Counters[0])}, nil
}

// FromElements returns a dataset of the given elements. Dimensions that differ between elements are
// [Unknown] in its spec. If the structures, kinds or ranks differ, the spec is unknown.
func FromElements(list ...Element) Dataset {
	var spec Spec
	for i, e := range list {
		if i == 0 {
			spec = SpecOf(e)
			continue
		}
		var ok bool
		if spec, ok = mergeSpecs(spec, SpecOf(e)); !ok {
			spec = Spec{}
			break
		}
	}
	list = slices.Clone(list)
	return Dataset{memorySource{op: "elements", count: len(list), spec: spec,
		elementAt: func(i int) lazyElement { return lazyElement{loaded: list[i]} }}}
}

// rowTable is a nest of tensors whose rows are the elements of a dataset.
type rowTable struct{ element Element }

// FromSlices returns a dataset of the rows of e, like tf.data's Dataset.from_tensor_slices. Element
// i contains row i of every component, without the leading axis. All components must have the same
// number of rows. The elements are views of the tensors of e.
func FromSlices(e Element) Dataset {
	n, err := numRows(e)
	if err != nil {
		return Dataset{errorSource{wrapError("from slices", "", err)}}
	}
	table := &rowTable{e}
	spec := mapDims(SpecOf(e), func(dims []int) []int { return dims[1:] })
	return Dataset{memorySource{op: "slices", count: n, spec: spec, table: table,
		elementAt: func(i int) lazyElement { return lazyElement{table: table, row: i} }}}
}

func (s *rowTable) viewRow(i int) Element {
	e, _ := MapNest(s.element, func(_ string, t Tensor) (Tensor, error) { return t.viewRow(i), nil })
	return e
}

// Range returns a dataset of the int64 scalars 0 to n-1, like tf.data's Dataset.range.
func Range(n int) Dataset {
	if n < 0 {
		return invalidDataset("range", "give a number from 0", "of %d numbers", n)
	}
	return Dataset{memorySource{op: "range", count: n, spec: Leaf(TensorSpec{Kind: Int64}),
		elementAt: func(i int) lazyElement { return lazyElement{loaded: Leaf(Scalar(int64(i)))} }}}
}

type memoryIterator struct {
	memorySource
	pos int
}

func (it *memoryIterator) Next(ctx context.Context) (Element, error) { return nextElement(ctx, it) }

func (it *memoryIterator) nextRange(ctx context.Context, limit int) (elementRange, error) {
	if err := ctx.Err(); err != nil {
		return elementRange{}, err
	}
	if it.pos >= it.count {
		return elementRange{}, io.EOF
	}
	r := elementRange{it.elementAt(it.pos), 1}
	if it.table != nil {
		r.count = min(limit, it.count-it.pos)
	}
	it.pos += r.count
	return r, nil
}

func (it *memoryIterator) State() (State, error) {
	return State{Op: it.op, Counters: []int64{int64(it.pos)}}, nil
}
func (it *memoryIterator) Close() error { return nil }

// SeqOptions describes the elements of [FromSeq]. The zero value means elements that are not
// batches, with unknown spec and number.
type SeqOptions struct {
	Spec  Spec // zero: unknown
	Count int  // number of elements; 0 is unknown, a negative number is infinite
	// BatchSize is the number of rows of a full batch. It is Unknown for batches of unknown size,
	// and 0 if the elements are not batches.
	BatchSize int
}

type seqSource struct {
	open func(ctx context.Context, pass Pass) iter.Seq2[Element, error]
	info Info
}

// FromSeq returns a dataset of the elements of a Go iterator, like tf.data's Dataset.from_generator
// for Python generators. The dataset calls open once per pass, possibly from several goroutines
// concurrently. Each iterator must start from the beginning, and must yield the same elements for
// the same pass, because a restore skips the elements before the saved position.
//
// Next returns the first error that the iterator yields, and an error for an element that does not
// match the spec. A panic in open or in the iterator is returned as a [*errkind.PanicError].
func FromSeq(open func(ctx context.Context, pass Pass) iter.Seq2[Element, error], opts SeqOptions) Dataset {
	if open == nil {
		return invalidDataset("from seq", "give one", "the function is nil")
	}
	if opts.BatchSize < Unknown {
		return invalidDataset("from seq", "give the rows of a full batch, Unknown, or 0 for no batches",
			"a batch size of %d", opts.BatchSize)
	}
	info := Info{Spec: opts.Spec, Cardinality: Cardinality(opts.Count), BatchSize: opts.BatchSize}
	switch {
	case opts.Count == 0:
		info.Cardinality = UnknownCardinality
	case opts.Count < 0:
		info.Cardinality = Infinite
	}
	return Dataset{seqSource{open, info}}
}

func (s seqSource) Info() Info { return s.info }

func (s seqSource) Open(ctx context.Context, pass Pass, start State) (Iterator, error) {
	start, err := start.forOp("seq", 1, 0)
	if err != nil {
		return nil, err
	}
	// The iterator outlives this call, so its context must not have this call's deadline.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	seq, err := s.callOpen(inner, pass)
	if err != nil {
		cancel()
		return nil, err
	}
	it := &seqIterator{spec: s.info.Spec}
	next, stop := iter.Pull2(func(yield func(Element, error) bool) {
		defer errkind.Recover("input: the iterator of FromSeq", &it.panicked) // keeps the iterator's stack
		seq(yield)
	})
	it.next, it.stop = next, func() { cancel(); stop() }
	if err := skipElements(ctx, it, start.Counters[0]); err != nil {
		it.Close()
		return nil, err
	}
	return it, nil
}

func (s seqSource) callOpen(ctx context.Context, pass Pass) (seq iter.Seq2[Element, error], err error) {
	defer errkind.Recover("input: the function of FromSeq", &err)
	return s.open(ctx, pass), nil
}

type seqIterator struct {
	spec     Spec
	next     func() (Element, error, bool)
	stop     func()
	pos      int64
	panicked error
}

func (it *seqIterator) Next(ctx context.Context) (Element, error) {
	if err := ctx.Err(); err != nil {
		return Element{}, err
	}
	e, err, ok := it.next()
	switch {
	case ok:
	case it.panicked != nil:
		err = it.panicked
	default:
		return Element{}, io.EOF
	}
	if err == nil {
		err = checkSpec(it.spec, e)
	}
	if err != nil {
		return Element{}, wrapError("from seq", fmt.Sprintf("element %d", it.pos), err)
	}
	it.pos++
	return e, nil
}

func (it *seqIterator) State() (State, error) {
	return State{Op: "seq", Counters: []int64{it.pos}}, nil
}

func (it *seqIterator) Close() error {
	before := it.panicked
	it.stop()
	if before == nil { // otherwise Next has returned it already
		return it.panicked
	}
	return nil
}

func skipElements(ctx context.Context, it Iterator, n int64) error {
	for i := int64(0); i < n; i++ {
		if _, err := it.Next(ctx); err == io.EOF {
			return stateError("the data ends after %d elements, the position is %d", i, n)
		} else if err != nil {
			return err
		}
	}
	return nil
}
