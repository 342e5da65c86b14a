package input

import (
	"context"
	"io"
)

// Batch stacks size consecutive elements on a new axis 0, as tf.data's Dataset.batch does. If the
// number of elements of a pass is no multiple of size, the last batch has fewer rows; dropRemainder
// leaves that batch out. The batch dimension of the spec is known only with dropRemainder.
//
// Consecutive rows of one tensor in memory (from [FromSlices] or Unbatch) make a batch that is a
// view of the tensor, at no cost, even with Shuffle, Repeat, Take, Skip, Shard, Concatenate and
// Cache in between. Batch copies other elements once.
//
// Before [Distribute], batch a dataset with the global batch size: the number of rows that all
// replicas together consume in one step.
func (d Dataset) Batch(size int, dropRemainder bool) Dataset {
	if size < 1 {
		return fail("batch", "give at least 1", "a batch of %d rows", size)
	}
	return d.then(func(in Source) Source {
		return derivation{in: in,
			describe: func(info Info) Info {
				info.Spec = mapDims(info.Spec, func(dims []int) []int {
					lead := Unknown
					if dropRemainder {
						lead = size
					}
					return append([]int{lead}, dims...)
				})
				info.BatchSize, info.recut = size, false
				if full := info.Cardinality / Cardinality(size); info.Cardinality >= 0 {
					if !dropRemainder && info.Cardinality%Cardinality(size) != 0 {
						full++
					}
					info.Cardinality = full
				}
				return info
			},
			start: func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error) {
				it, _, err := openInput(ctx, in, pass, from, "batch", 0)
				if err != nil {
					return nil, err
				}
				return &batcher{Iterator: it, size: size, drop: dropRemainder}, nil
			},
		}
	})
}

type batcher struct {
	Iterator
	size int
	drop bool
	runs []run // room for a batch, empty between calls
}

func (b *batcher) Next(ctx context.Context) (Element, error) {
	runs, have := b.runs[:0], 0
	defer func() {
		clear(runs) // what they refer to lives no longer than the batch
		b.runs = runs
	}()
	for have < b.size {
		r, err := nextRun(ctx, b.Iterator, b.size-have)
		if err == io.EOF {
			break
		}
		if err != nil {
			return Element{}, err
		}
		runs, have = appendRun(runs, r), have+r.n
	}
	if have == 0 || b.drop && have < b.size {
		return Element{}, io.EOF
	}
	batch, err := stackRuns(runs, have)
	if err != nil {
		return Element{}, within("batch", "", err)
	}
	return batch, nil
}

func (b *batcher) State() (State, error) { return stateOver("batch", b.Iterator) }

// Unbatch yields the rows of every batch as elements of their own, as tf.data's Dataset.unbatch
// does: the reverse of Batch. A restore reads the current batch again.
func (d Dataset) Unbatch() Dataset {
	return d.then(func(in Source) Source {
		return derivation{in: in,
			describe: func(info Info) Info {
				rows := leadingDim(info.Spec)
				if !info.Spec.IsZero() && rankZero(info.Spec) {
					return Info{Cardinality: UnknownCardinality}
				}
				info.Spec = mapDims(info.Spec, func(dims []int) []int { return dims[1:] })
				info.BatchSize = 0
				switch {
				case rows >= 0:
					info.Cardinality = info.Cardinality.times(int64(rows))
				case info.Cardinality > 0:
					info.Cardinality = UnknownCardinality
				}
				return info
			},
			start: func(ctx context.Context, in Source, pass Pass, from State) (Iterator, error) {
				it, at, err := openInput(ctx, in, pass, from, "unbatch", 1)
				if err != nil {
					return nil, err
				}
				u := &unbatcher{Iterator: it, current: &rows{}}
				if err := u.restore(ctx, at[0]); err != nil {
					it.Close()
					return nil, err
				}
				return u, nil
			},
		}
	})
}

func rankZero(spec Spec) bool {
	for _, s := range spec.Leaves() {
		if len(s.Dims) == 0 {
			return true
		}
	}
	return false
}

type unbatcher struct {
	Iterator
	before  State // of the input, before current
	current *rows
	row     int
}

func (u *unbatcher) load(ctx context.Context) (err error) {
	if u.before, err = u.Iterator.State(); err != nil {
		return err
	}
	e, err := u.Iterator.Next(ctx)
	if err != nil {
		return err
	}
	n, err := rowsOf(e)
	if err != nil {
		return err
	}
	u.current, u.row = &rows{of: e, n: n}, 0
	return nil
}

func (u *unbatcher) restore(ctx context.Context, row int64) error {
	if row == 0 {
		return nil
	}
	if err := u.load(ctx); err == io.EOF || err == nil && row > int64(u.current.n) {
		return misfit("row %d of a batch of %d", row, u.current.n)
	} else if err != nil {
		return err
	}
	u.row = int(row)
	return nil
}

func (u *unbatcher) Next(ctx context.Context) (Element, error) { return whole(u.nextItem(ctx)) }

func (u *unbatcher) nextItem(ctx context.Context) (item, error) {
	for u.row >= u.current.n {
		if err := u.load(ctx); err != nil {
			return item{}, err
		}
	}
	u.row++
	return item{of: u.current, row: u.row - 1}, nil
}

func (u *unbatcher) State() (State, error) {
	if u.row >= u.current.n {
		return stateOver("unbatch", u.Iterator, 0)
	}
	return State{Op: "unbatch", At: []int64{int64(u.row)}, In: []State{u.before}}, nil
}
