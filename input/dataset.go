package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
)

// Cardinality is the number of elements of a dataset, or one of [UnknownCardinality] and [Infinite].
type Cardinality int64

const (
	UnknownCardinality Cardinality = -2
	Infinite           Cardinality = -1
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

// Info is what is known of a dataset before it is opened.
type Info struct {
	Spec        Spec        // the elements; zero if unknown
	Cardinality Cardinality // note that the zero value means empty
	// BatchSize is the number of rows of a full batch: 0 for elements that are no batches, Unknown for batches of a size
	// that is not known beforehand.
	BatchSize int
	// Files says that the elements are read from files, which several hosts can divide among themselves.
	Files bool

	// recut says that something after Batch may have given the batches other numbers of rows: BatchSize is what is
	// expected of them, not what to cut by.
	recut bool
}

// Pass tells a source which pass over the data is opened: 0, or what Repeat counts. Sources with a random order derive
// it from the epoch, so that every host and every restore sees the same one.
type Pass struct {
	Epoch uint64
}

// Source is what a dataset reads from. Implement it for data this package does not know; a Source is a description and
// must be safe for any number of goroutines.
type Source interface {
	Info() Info
	// Open starts a pass at a position, which is zero for the start or comes from State of an earlier iterator.
	Open(ctx context.Context, pass Pass, from State) (Iterator, error)
}

// FileSharder is a Source whose files can be divided: host i of n reads the files whose index is i modulo n.
type FileSharder interface {
	ShardFiles(num, index int) (Source, error)
}

// Iterator is one pass over a dataset. One goroutine uses it at a time.
type Iterator interface {
	// Next returns the next element, or io.EOF at the end. After another error the position is lost: close the iterator
	// and open the dataset at the last saved State.
	Next(ctx context.Context) (Element, error)
	// State is the position before the next element.
	State() (State, error)
	// Close releases files and goroutines. It may be called twice.
	Close() error
}

// Dataset is a source with the operations on it. It is a value: operations return new datasets and read nothing, and any
// number of goroutines may open it. An operation with bad arguments returns a dataset that answers [Dataset.Err], Open
// and Distribute with the reason. The zero Dataset is empty.
type Dataset struct {
	src Source
}

// New makes a dataset of a source. A panic of its Open, ShardFiles or iterators is a [*PanicError].
func New(src Source) Dataset {
	if src == nil {
		return Dataset{}
	}
	if files, ok := src.(FileSharder); ok {
		return Dataset{foreignFiles{foreign{src}, files}}
	}
	return Dataset{foreign{src}}
}

// Info describes the elements.
func (d Dataset) Info() Info { return d.source().Info() }

// Err is the reason why this dataset, or one it was made from, cannot be opened; nil if its operations were given valid
// arguments.
func (d Dataset) Err() error {
	if b, ok := d.source().(broken); ok {
		return b.err
	}
	return nil
}

func (d Dataset) source() Source {
	if d.src == nil {
		return elements{}
	}
	return d.src
}

// Open starts the first pass from the beginning.
func (d Dataset) Open(ctx context.Context) (Iterator, error) {
	return d.OpenAt(ctx, Pass{}, State{})
}

// OpenAt starts a pass at a position: the same elements follow as followed when the position was saved. Errors of a
// position of another pipeline match [ErrState].
func (d Dataset) OpenAt(ctx context.Context, pass Pass, from State) (Iterator, error) {
	it, err := d.source().Open(ctx, pass, from)
	if err != nil {
		return nil, err
	}
	return &guard{in: it}, nil
}

// All iterates over the first pass. It yields an error once, as the last thing.
func (d Dataset) All(ctx context.Context) iter.Seq2[Element, error] { return d.Pass(ctx, Pass{}) }

// Pass iterates over one pass. It yields an error once, as the last thing.
func (d Dataset) Pass(ctx context.Context, pass Pass) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		it, err := d.OpenAt(ctx, pass, State{})
		if err != nil {
			yield(Element{}, err)
			return
		}
		defer it.Close()
		for {
			e, err := it.Next(ctx)
			if err == io.EOF {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// broken stands for a dataset that was described wrongly.
type broken struct{ err error }

func (b broken) Info() Info                                          { return Info{Cardinality: UnknownCardinality} }
func (b broken) Open(context.Context, Pass, State) (Iterator, error) { return nil, b.err }

func fail(format string, args ...any) Dataset {
	return Dataset{broken{fmt.Errorf("input: "+format, args...)}}
}

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

var errClosed = errors.New("input: the iterator is closed")

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
		return State{}, fmt.Errorf("input: no position after an error: %w", g.err)
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
