package input

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// derivation is a dataset made from one other: the description of an operation, which can be put on
// another input when files are divided.
type derivation struct {
	in       Source
	describe func(in Info) Info
	start    func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error)
}

func (d derivation) Info() Info { return d.describe(d.in.Info()) }

func (d derivation) Open(ctx context.Context, pass Pass, from State) (Iterator, error) {
	return d.start(ctx, d.in, pass, from)
}

func (d derivation) ShardFiles(num, index int) (Source, error) {
	in, err := shardFiles(d.in, num, index)
	if err != nil {
		return nil, err
	}
	d.in = in
	return d, nil
}

// ErrNotShardable matches the error of the policy [File] on a dataset that does not read files. Its
// text is that of TensorFlow's NotFoundError.
var ErrNotShardable = errkind.New(errkind.NotFoundError, "input: found an unshardable source dataset")

func shardFiles(src Source, num, index int) (Source, error) {
	if s, ok := src.(FileSharder); ok {
		return s.ShardFiles(num, index)
	}
	if f, ok := src.(foreign); ok {
		src = f.Source
	}
	return nil, &errkind.Fault{Match: ErrNotShardable, Reason: fmt.Sprintf("%T does not read files", src), Hint: "use the policy Data or Off"}
}

// openInput opens the input of an operation whose position is n counters and the input's position.
func openInput(ctx context.Context, in Source, pass Pass, from State, op string, n int) (Iterator, []int64, error) {
	at, inner := make([]int64, n), State{}
	if !from.IsZero() {
		if err := from.want(op, n, 1); err != nil {
			return nil, nil, err
		}
		at, inner = from.At, from.In[0]
	}
	it, err := in.Open(ctx, pass, inner)
	return it, at, err
}

// stateOver puts an operation's counters on top of the input's position.
func stateOver(op string, in Iterator, at ...int64) (State, error) {
	inner, err := in.State()
	if err != nil {
		return State{}, err
	}
	return State{Op: op, At: at, In: []State{inner}}, nil
}

// marker remembers a recent position of an iterator and how many elements came after it. Asking an
// iterator for its position may cost more than an element, so it is not done for every one.
type marker struct {
	in    Iterator
	every int64
	state State
	since int64
}

func (m *marker) next(ctx context.Context) (Element, error) {
	if m.since >= m.every {
		state, err := m.in.State()
		if err != nil {
			return Element{}, err
		}
		m.state, m.since = state, 0
	}
	e, err := m.in.Next(ctx)
	if err == nil {
		m.since++
	}
	return e, err
}
