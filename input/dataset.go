package input

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Cardinality is the number of elements of a dataset, or [UnknownCardinality] or [Infinite], as
// tf.data.experimental.cardinality returns it.
type Cardinality int64

const (
	// UnknownCardinality is TensorFlow's UNKNOWN_CARDINALITY: only a pass over the data tells.
	UnknownCardinality Cardinality = -2
	// Infinite is TensorFlow's INFINITE_CARDINALITY: the dataset never ends.
	Infinite Cardinality = -1
)

// String prints the count, "unknown" or "infinite".
func (c Cardinality) String() string {
	switch c {
	case UnknownCardinality:
		return "unknown"
	case Infinite:
		return "infinite"
	}
	return fmt.Sprint(int64(c))
}

// Info says what is known of a dataset before it is opened.
type Info struct {
	Spec        Spec        // the elements; zero if unknown
	Cardinality Cardinality // note that the zero value means empty
	// BatchSize is the number of rows of a full batch, 0 for elements that are no batches, and
	// Unknown for batches of a size that is not known beforehand.
	BatchSize int

	// recut is true if an operation after Batch may have changed the batches' numbers of rows:
	// BatchSize is then expected, and not certain enough to cut by.
	recut bool
}

// join makes info that of elements of which some, or some parts, are next's.
func (info *Info) join(next Info) {
	switch {
	case info.BatchSize == 0 || next.BatchSize == 0:
		info.BatchSize = 0
	case info.BatchSize != next.BatchSize:
		info.BatchSize = Unknown
	}
	info.recut = info.recut || next.recut
}

// Pass tells a source which pass over the data is opened: Epoch is 0 for the first, and Repeat
// counts it up. Sources with a random order derive the order from the epoch, so that every process
// and every restore sees the same order.
type Pass struct {
	Epoch uint64
}

// Source describes where a dataset reads from. Implement it for data that this package does not
// know. A Source must be safe for any number of goroutines.
type Source interface {
	Info() Info
	// Open starts a pass at a position: the zero State for the start, or the State of an earlier
	// iterator.
	Open(ctx context.Context, pass Pass, from State) (Iterator, error)
}

// FileSharder is a Source whose files can be divided between processes: process index of num reads
// the files whose number is index modulo num.
type FileSharder interface {
	ShardFiles(num, index int) (Source, error)
}

// Iterator is one pass over a dataset. One goroutine uses it at a time.
type Iterator interface {
	// Next returns the next element, or io.EOF at the end. After another error the position is
	// lost: close the iterator and open the dataset at the last saved State.
	Next(ctx context.Context) (Element, error)
	// State returns the position before the next element.
	State() (State, error)
	// Close releases files and goroutines. A second call does nothing.
	Close() error
}

// Dataset is a source with the operations on it: TensorFlow's tf.data.Dataset. It is a value:
// operations return new datasets and read nothing, and any number of goroutines may open it. An
// operation with bad arguments returns a dataset whose [Dataset.Err] is the reason; Open and
// [Distribute] return that error too. The zero Dataset is empty.
type Dataset struct {
	src Source
}

// New returns a dataset of a source. A panic of the source's Open or ShardFiles, or of one of its
// iterators, becomes a [*errkind.PanicError].
func New(src Source) Dataset {
	if src == nil {
		return Dataset{}
	}
	return Dataset{foreign{src}}
}

// Info returns what is known of the elements.
func (d Dataset) Info() Info { return d.source().Info() }

// Err returns the reason why this dataset, or a dataset that it was made from, cannot be opened. It
// returns nil if all operations were given valid arguments.
func (d Dataset) Err() error {
	if b, ok := d.source().(failure); ok {
		return b.err
	}
	return nil
}

func (d Dataset) source() Source {
	if d.src == nil {
		return memory{op: "elements"}
	}
	return d.src
}

// Open starts the first pass from the beginning.
func (d Dataset) Open(ctx context.Context) (Iterator, error) {
	return d.OpenAt(ctx, Pass{}, State{})
}

// OpenAt starts a pass at a position, and yields the elements that followed it when it was saved.
// The error of a position from another pipeline matches [ErrState].
func (d Dataset) OpenAt(ctx context.Context, pass Pass, from State) (Iterator, error) {
	it, err := d.source().Open(ctx, pass, from)
	if err != nil {
		return nil, err
	}
	return &guard{in: it}, nil
}

// All iterates over the elements of the first pass. It yields an error at most once, as the last
// pair.
func (d Dataset) All(ctx context.Context) iter.Seq2[Element, error] { return d.Pass(ctx, Pass{}) }

// Pass iterates over the elements of one pass. It yields an error at most once, as the last pair.
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

// yieldAll yields what next returns until io.EOF, and an error as the last pair.
func yieldAll[T any](ctx context.Context, next func(context.Context) (T, error), yield func(T, error) bool) {
	for {
		x, err := next(ctx)
		if err == io.EOF || !yield(x, err) || err != nil {
			return
		}
	}
}

// failure stands for a dataset that was described wrongly.
type failure struct{ err error }

func (b failure) Info() Info                                          { return Info{Cardinality: UnknownCardinality} }
func (b failure) Open(context.Context, Pass, State) (Iterator, error) { return nil, b.err }

// then derives a dataset unless d is broken.
func (d Dataset) then(make func(in Source) Source) Dataset {
	if d.Err() != nil {
		return d
	}
	return Dataset{make(d.source())}
}

// guard keeps what went wrong: a pipeline that failed in the middle has no position any more.
type guard struct {
	in  Iterator
	err error
}

var errClosed = fault(errkind.FailedPreconditionError, "next", "open the dataset again", "the iterator is closed")

// noPosition is the error of State after err ended the iteration.
func noPosition(err error) error {
	return &errkind.Fault{Op: "input: state", Reason: "no position after an error", Err: err}
}

func (g *guard) Next(ctx context.Context) (Element, error) {
	if g.err != nil {
		return Element{}, g.err
	}
	if err := ctx.Err(); err != nil {
		return Element{}, err // nothing was read, so the position stands
	}
	e, err := g.in.Next(ctx)
	if err != nil && err != io.EOF {
		g.err = err
	}
	return e, err
}

func (g *guard) State() (State, error) {
	if g.err != nil {
		return State{}, noPosition(g.err)
	}
	return g.in.State()
}

func (g *guard) Close() error {
	if g.err == errClosed {
		return nil
	}
	g.err = errClosed
	return g.in.Close()
}

// times multiplies a cardinality by a count that is negative for infinite.
func (c Cardinality) times(n int64) Cardinality {
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

// plus adds two cardinalities.
func (c Cardinality) plus(o Cardinality) Cardinality {
	switch {
	case c == Infinite || o == Infinite:
		return Infinite
	case c < 0 || o < 0 || c > math.MaxInt64-o:
		return UnknownCardinality
	}
	return c + o
}
