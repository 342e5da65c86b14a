package input

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Cardinality is the number of elements of a dataset, [UnknownCardinality] or [Infinite], like the
// result of tf.data.experimental.cardinality.
type Cardinality int64

const (
	// UnknownCardinality is TensorFlow's UNKNOWN_CARDINALITY: the number of elements is not known
	// before a pass over the data.
	UnknownCardinality Cardinality = -2
	// Infinite is TensorFlow's INFINITE_CARDINALITY: the dataset never ends.
	Infinite Cardinality = -1
)

// String returns the number as text, or "unknown" or "infinite".
func (c Cardinality) String() string {
	switch c {
	case UnknownCardinality:
		return "unknown"
	case Infinite:
		return "infinite"
	}
	return fmt.Sprint(int64(c))
}

// Info describes a dataset before it is opened.
type Info struct {
	Spec        Spec        // spec of the elements; zero if unknown
	Cardinality Cardinality // the zero value means an empty dataset
	// BatchSize is the number of rows of a full batch. It is 0 if the elements are not batches, and
	// Unknown for batches of unknown size.
	BatchSize int

	// batchSizeUncertain is true if an operation after Batch may have changed the number of rows of
	// a batch. BatchSize is then an estimate, and RuleAuto does not select the rule Sizes.
	batchSizeUncertain bool
}

// mergeBatchSize merges the batch sizes of two inputs of a dataset: the size in info with the size
// in next. Different sizes become Unknown, or 0 if one input is not batched.
func (info *Info) mergeBatchSize(next Info) {
	switch {
	case info.BatchSize == 0 || next.BatchSize == 0:
		info.BatchSize = 0
	case info.BatchSize != next.BatchSize:
		info.BatchSize = Unknown
	}
	info.batchSizeUncertain = info.batchSizeUncertain || next.batchSizeUncertain
}

// Pass identifies one pass over the data. Epoch is 0 for the first pass, and Repeat increments it.
// A source with a random order derives the order from the epoch, so that all processes and all
// restores use the same order.
type Pass struct {
	Epoch uint64
}

// Source provides the elements of a dataset. Implement it to read data formats that this package
// does not support. A Source must be safe for concurrent use.
type Source interface {
	Info() Info
	// Open starts a pass at a position: the zero State for the start, or a State returned by an
	// earlier iterator of the same source.
	Open(ctx context.Context, pass Pass, start State) (Iterator, error)
}

// FileSharder is implemented by a Source whose files can be divided between processes. ShardFiles
// returns a source of the files whose index in the list is index modulo num.
type FileSharder interface {
	ShardFiles(num, index int) (Source, error)
}

// Iterator is one pass over a dataset. It is not safe for concurrent use.
type Iterator interface {
	// Next returns the next element, or io.EOF at the end. After any other error the position is
	// lost: close the iterator and open the dataset at the last saved State.
	Next(ctx context.Context) (Element, error)
	// State returns the position before the next element.
	State() (State, error)
	// Close releases files and goroutines. A second call does nothing.
	Close() error
}

// Dataset is a source together with the operations applied to it, like TensorFlow's tf.data.Dataset. A
// Dataset is immutable and safe for concurrent use. Operations return new datasets and read no data.
//
// An operation with invalid arguments returns a dataset whose [Dataset.Err] describes the problem. Open
// and [Distribute] return the same error. The zero Dataset is empty.
type Dataset struct {
	src Source
}

// New returns a dataset that reads src. A panic in the source's Open or ShardFiles, or in one of
// its iterators, is returned as a [*errkind.PanicError]. If src is nil, the dataset is empty.
func New(src Source) Dataset {
	if src == nil {
		return Dataset{}
	}
	return Dataset{recoveringSource{src}}
}

// Info returns the spec, cardinality and batch size of the dataset, as far as they are known.
func (d Dataset) Info() Info { return d.source().Info() }

// Err returns the first error for invalid arguments among the operations that created d, or nil.
func (d Dataset) Err() error {
	if b, ok := d.source().(errorSource); ok {
		return b.err
	}
	return nil
}

func (d Dataset) source() Source {
	if d.src == nil {
		return memorySource{op: "elements"}
	}
	return d.src
}

// Open starts the first pass from the beginning.
func (d Dataset) Open(ctx context.Context) (Iterator, error) {
	return d.OpenAt(ctx, Pass{}, State{})
}

// OpenAt starts a pass at a saved position. The iterator returns the elements after that position.
// If the position was saved by another dataset, the error matches [ErrState].
func (d Dataset) OpenAt(ctx context.Context, pass Pass, start State) (Iterator, error) {
	it, err := d.source().Open(ctx, pass, start)
	if err != nil {
		return nil, err
	}
	return &stickyErrorIterator{input: it}, nil
}

// All iterates over the elements of the first pass. After an error, the iteration ends.
func (d Dataset) All(ctx context.Context) iter.Seq2[Element, error] { return d.Pass(ctx, Pass{}) }

// Pass iterates over the elements of the given pass. After an error, the iteration ends.
func (d Dataset) Pass(ctx context.Context, pass Pass) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		it, err := d.OpenAt(ctx, pass, State{})
		if err != nil {
			yield(Element{}, err)
			return
		}
		defer it.Close()
		yieldAll(ctx, it.Next, yield)
	}
}

// yieldAll calls next and yields its results until io.EOF. If next fails, it yields the error and
// stops.
func yieldAll[T any](ctx context.Context, next func(context.Context) (T, error), yield func(T, error) bool) {
	for {
		x, err := next(ctx)
		if err == io.EOF || !yield(x, err) || err != nil {
			return
		}
	}
}

// errorSource is the source of a dataset with invalid arguments.
type errorSource struct{ err error }

func (s errorSource) Info() Info { return Info{Cardinality: UnknownCardinality} }

func (s errorSource) Open(context.Context, Pass, State) (Iterator, error) { return nil, s.err }

// wrapSource returns a dataset that reads newSource(src), where src is the source of d. If d has an
// error, it returns d.
func (d Dataset) wrapSource(newSource func(src Source) Source) Dataset {
	if d.Err() != nil {
		return d
	}
	return Dataset{newSource(d.source())}
}

// stickyErrorIterator returns the first error of Next from all later calls too, because a pipeline
// that failed has no valid position.
type stickyErrorIterator struct {
	input Iterator
	err   error
}

var errClosed = newFault(errkind.FailedPreconditionError, "next", "open the dataset again", "the iterator is closed")

// noStateError returns the error that an iterator's State method returns after Next has failed with
// err.
func noStateError(err error) error {
	return &errkind.Fault{Op: "input: state", Reason: "no position after an error", Err: err}
}

func (g *stickyErrorIterator) Next(ctx context.Context) (Element, error) {
	if g.err != nil {
		return Element{}, g.err
	}
	if err := ctx.Err(); err != nil {
		return Element{}, err // nothing was read, so the position is still valid
	}
	e, err := g.input.Next(ctx)
	if err != nil && err != io.EOF {
		g.err = err
	}
	return e, err
}

func (g *stickyErrorIterator) State() (State, error) {
	if g.err != nil {
		return State{}, noStateError(g.err)
	}
	return g.input.State()
}

func (g *stickyErrorIterator) Close() error {
	if g.err == errClosed {
		return nil
	}
	g.err = errClosed
	return g.input.Close()
}

// multiply multiplies a cardinality by n. A negative n means infinitely many repetitions.
func (c Cardinality) multiply(n int64) Cardinality {
	switch {
	case c == 0 || n == 0:
		return 0
	case c == Infinite || n < 0:
		return Infinite
	case c == UnknownCardinality:
		return UnknownCardinality
	case int64(c) > math.MaxInt64/n:
		return UnknownCardinality
	}
	return c * Cardinality(n)
}

func (c Cardinality) add(o Cardinality) Cardinality {
	switch {
	case c == Infinite || o == Infinite:
		return Infinite
	case c < 0 || o < 0 || c > math.MaxInt64-o:
		return UnknownCardinality
	}
	return c + o
}
