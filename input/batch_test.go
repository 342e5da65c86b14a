package input_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// opaque hides from the operations after it what the elements are rows of, so that batches join
// them one by one.
type opaque struct{ input.Source }

func (o opaque) Open(ctx context.Context, pass input.Pass, from input.State) (input.Iterator, error) {
	it, err := o.Source.Open(ctx, pass, from)
	return struct{ input.Iterator }{it}, err
}

// source makes a Source of a dataset.
type source struct{ input.Dataset }

func (s source) Open(ctx context.Context, pass input.Pass, from input.State) (input.Iterator, error) {
	return s.OpenAt(ctx, pass, from)
}

// table is an element of n rows with components of several kinds, ranks and no width.
func table(t testing.TB, n, base int) input.Element {
	t.Helper()
	wide, labels, names := make([]float32, n*6), make([]int64, n), make([]string, n)
	for i := range wide {
		wide[i] = float32(base*6 + i)
	}
	for i := range n {
		labels[i], names[i] = int64(base+i), fmt.Sprint("row ", base+i)
	}
	x, err := input.NewTensor(wide, n, 2, 3)
	require.NoError(t, err)
	none, err := input.Zeros(input.Bool, n, 0)
	require.NoError(t, err)
	return input.Dict(map[string]input.Element{
		"x": input.Leaf(x),
		"y": input.Tuple(input.Leaf(input.Vector(labels...)), input.Leaf(input.Vector(names...)), input.Leaf(none)),
	})
}

// TestBatchOfRowsEqualsBatchOfElements compares batches that are sliced from a table with batches
// that are stacked from elements. Data, positions and ends are the same, also after a restore.
func TestBatchOfRowsEqualsBatchOfElements(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		parts := []input.Element{table(t, rng.IntN(20), 0), table(t, 1+rng.IntN(20), 100)}
		steps, name := []func(input.Dataset) input.Dataset{}, ""
		for range rng.IntN(4) {
			n := 1 + rng.IntN(8)
			op := []struct {
				name string
				do   func(d input.Dataset) input.Dataset
			}{
				{"shuffle", func(d input.Dataset) input.Dataset { return d.Shuffle(n, input.ShuffleOptions{Seed: seed}) }},
				{"repeat", func(d input.Dataset) input.Dataset { return d.Repeat(1 + n%3) }},
				{"take", func(d input.Dataset) input.Dataset { return d.Take(2 * n) }},
				{"skip", func(d input.Dataset) input.Dataset { return d.Skip(n) }},
				{"shard", func(d input.Dataset) input.Dataset { return d.Shard(2, n%2) }},
				{"cache", func(d input.Dataset) input.Dataset { return d.Cache() }},
				{"unbatch", func(d input.Dataset) input.Dataset { return d.Batch(n, false).Unbatch() }},
			}[rng.IntN(7)]
			steps, name = append(steps, op.do), name+fmt.Sprintf(".%s(%d)", op.name, n)
		}
		size, drop := 1+rng.IntN(7), rng.IntN(2) == 0
		build := func(hide bool) input.Dataset {
			link := func(d input.Dataset) input.Dataset {
				if hide {
					return input.New(opaque{source{d}})
				}
				return d
			}
			d := link(input.FromSlices(parts[0])).Concatenate(link(input.FromSlices(parts[1])))
			for _, step := range steps {
				d = link(step(d))
			}
			return d.Batch(size, drop)
		}
		t.Run(fmt.Sprintf("%d%s.batch(%d,%v)", seed, name, size, drop), func(t *testing.T) {
			fast, slow := build(false), build(true)
			assert.Equal(t, slow.Info(), fast.Info())
			a, err := fast.Open(ctx)
			require.NoError(t, err)
			defer a.Close()
			b, err := slow.Open(ctx)
			require.NoError(t, err)
			defer b.Close()
			var states []input.State
			var got []string
			for {
				at, err := a.State()
				require.NoError(t, err)
				same, err := b.State()
				require.NoError(t, err)
				require.Equal(t, same, at)
				states = append(states, at)
				e, err := a.Next(ctx)
				want, wantErr := b.Next(ctx)
				require.Equal(t, wantErr, err)
				if err == io.EOF {
					break
				}
				require.Equal(t, textOf(want), textOf(e))
				got = append(got, textOf(e))
			}
			i := rng.IntN(len(states))
			it, err := build(false).OpenAt(ctx, input.Pass{}, states[i])
			require.NoError(t, err)
			defer it.Close()
			assert.Equal(t, append([]string{}, got[i:]...), drain(t, it, 1000))
		})
	}
}

func TestBatchOfConsecutiveRowsIsAView(t *testing.T) {
	all := table(t, 12, 0)
	base, err := input.Flat[float32](all.At(0).Leaf())
	require.NoError(t, err)
	it, err := input.FromSlices(all).Skip(2).Repeat(-1).Batch(5, true).Open(context.Background())
	require.NoError(t, err)
	defer it.Close()
	for i := range 4 {
		e, err := it.Next(context.Background())
		require.NoError(t, err)
		flat, err := input.Flat[float32](e.At(0).Leaf())
		require.NoError(t, err)
		first := 2 + i%2*5
		assert.Same(t, &base[first*6], &flat[0], "batch %d", i)
		assert.Equal(t, len(flat), cap(flat), "nothing can be appended over the next batch")
	}
}

// TestBatchAllocatesPerBatchNotPerRow bounds allocations well below one a row: what is left goes by
// components.
func TestBatchAllocatesPerBatchNotPerRow(t *testing.T) {
	const n, size = 4096, 256
	rows := input.FromSlices(table(t, n, 0))
	for name, ds := range map[string]input.Dataset{
		"ordered":  rows.Repeat(-1),
		"shuffled": rows.Shuffle(n, input.ShuffleOptions{}).Repeat(-1),
		"sharded":  rows.Shard(2, 1).Repeat(-1),
		"unbatch":  rows.Batch(size, true).Unbatch().Repeat(-1),
	} {
		t.Run(name, func(t *testing.T) {
			it, err := ds.Batch(size, true).Open(context.Background())
			require.NoError(t, err)
			defer it.Close()
			next := func() {
				if _, err := it.Next(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			next()
			assert.LessOrEqual(t, testing.AllocsPerRun(10, next), size/4.0)
		})
	}
}
