package feed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/input/gomlxdata"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// pairs is a dataset of n rows with two components: row i has four floats, beginning with i, and i
// itself.
func pairs(n int) input.Dataset {
	x, y := make([]float32, n*4), make([]int32, n)
	for i := range n {
		for j := range 4 {
			x[i*4+j] = float32(i) + float32(j)/4
		}
		y[i] = int32(i)
	}
	floats, err := input.NewTensor(x, n, 4)
	if err != nil {
		panic(err)
	}
	return input.FromSlices(input.Tuple(input.Leaf(floats), input.Leaf(input.Vector(y...))))
}

func distribute(t testing.TB, s *strategy.TPUStrategy, ds input.Dataset) *input.DistributedDataset {
	t.Helper()
	d, err := input.Distribute(ds, input.Options{Replicas: s.NumReplicasInSync()})
	require.NoError(t, err)
	return d
}

func open(t testing.TB, s *strategy.TPUStrategy, ds input.Dataset, opts feed.Options) *feed.Feed {
	t.Helper()
	f, err := feed.New(context.Background(), s, distribute(t, s, ds), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// labels reads the rest of a feed and returns the labels of each replica for each step.
func labels(t testing.TB, f *feed.Feed, s *strategy.TPUStrategy) (all [][]any) {
	t.Helper()
	for batch, err := range f.All(context.Background()) {
		require.NoError(t, err)
		all = append(all, strategytest.Values(t, batch.Values[1], s.NumReplicasInSync()))
	}
	return all
}

func TestTheDevicesHoldWhatTheInputHad(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		replicas, p int
		split       logical.Annotation
	}{{1, 1, logical.Annotation{}}, {2, 1, logical.Annotation{}}, {4, 1, logical.Annotation{}},
		{2, 2, logical.SplitInto(1, 2)}, {2, 2, logical.SplitInto(2, 1)}} {
		s := strategytest.New(t, c.replicas, c.p)
		ds := pairs(48).Shuffle(48, input.ShuffleOptions{Seed: 3}).Batch(8, true).Repeat(2)
		for _, depth := range []int{0, 1, 5, 100} {
			d, err := feed.DistributeAhead(s, ds, feed.DistributeOptions{Arguments: []logical.Annotation{c.split}}, false)
			require.NoError(t, err)
			f, err := feed.New(ctx, s, d, feed.Options{Depth: depth})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, f.Close()) })
			steps := 0
			for step, err := range distribute(t, s, ds).All(ctx) {
				require.NoError(t, err)
				batch, err := f.Next(ctx)
				require.NoError(t, err)
				require.Equal(t, step.Index, batch.Index)
				require.Nil(t, batch.Mask)
				require.Len(t, batch.Args(), 2)
				require.Equal(t, step.Replicas[0].Paths(), batch.Paths)
				for leaf, v := range batch.Values {
					for r, got := range strategytest.Values(t, v, c.replicas) {
						want, err := gomlxdata.ToTensor(step.Replicas[r].Leaves()[leaf])
						require.NoError(t, err)
						require.Equal(t, want.Value(), got, "step %d, replica %d", steps, r)
					}
				}
				steps++
			}
			require.Equal(t, 12, steps)
			for range 2 {
				_, err := f.Next(ctx)
				require.Equal(t, io.EOF, err)
			}
			require.NoError(t, f.Close())
		}
	}
}

func TestAPositionGoesOnWithTheVeryNextBatch(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	ds := pairs(22).Shuffle(7, input.ShuffleOptions{Seed: 1}).Batch(4, true).Repeat(3)
	want := labels(t, open(t, s, ds, feed.Options{}), s)
	require.Len(t, want, 15)
	for at := range len(want) + 1 {
		f := open(t, s, ds, feed.Options{Depth: 1 + at%4})
		for range at {
			_, err := f.Next(ctx)
			require.NoError(t, err)
		}
		data, err := f.State().Marshal()
		require.NoError(t, err)
		require.NoError(t, f.Close())
		from, err := input.ParseState(data)
		require.NoError(t, err)
		require.Equal(t, want[at:], append([][]any{}, labels(t, open(t, s, ds, feed.Options{Start: from}), s)...), "from %d",
			at)
	}
	_, err := feed.New(ctx, s, distribute(t, s, ds), feed.Options{Start: input.State{Op: "other"}})
	require.ErrorIs(t, err, input.ErrState)
}

func TestErrorsComeAfterTheBatchesBeforeThem(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	broken := errors.New("broken")
	fails := func(at int32, with func() error, parallel int) input.Dataset {
		return pairs(40).Map(func(_ context.Context, e input.Element) (input.Element, error) {
			if e.Leaves()[1].Flat().([]int32)[0] == at {
				return input.Element{}, with()
			}
			return e, nil
		}, input.MapOptions{Spec: pairs(1).Info().Spec, Parallel: parallel})
	}
	panics := func() error { panic("ouch") }
	panicked := func(err error) {
		var panicked *errkind.PanicError
		require.ErrorAs(t, err, &panicked)
		require.Equal(t, "ouch", panicked.Value)
		require.Contains(t, panicked.Stack, "feed_test.go")
	}
	for name, c := range map[string]struct {
		data  input.Dataset
		check func(err error)
	}{
		"error": {fails(21, func() error { return broken }, 1),
			func(err error) { require.ErrorIs(t, err, broken) }},
		"panic":                   {fails(21, panics, 1), panicked},
		"panic of a parallel map": {fails(21, panics, 2), panicked},
		"panic ahead of the feed": {fails(21, panics, 1).Prefetch(2), panicked},
	} {
		f := open(t, s, c.data.Batch(4, true), feed.Options{Depth: 3})
		seen := 0
		for _, err := range f.All(ctx) {
			if err != nil {
				c.check(err)
				break
			}
			seen++
		}
		require.Equal(t, 5, seen, name)
		_, err := f.Next(ctx)
		c.check(err)
		require.NoError(t, f.Close())
	}

	f := open(t, s, input.FromElements(input.Leaf(input.Vector("a", "b")),
		input.Leaf(input.Vector("c", "d"))).Unbatch().Batch(2, true), feed.Options{})
	_, err := f.Next(ctx)
	require.ErrorContains(t, err, "string")
}

// slow is a dataset that yields one batch for each element that is sent to allow.
func slow(allow <-chan struct{}, read *atomic.Int64) func(context.Context) iter.Seq2[input.Element, error] {
	return func(ctx context.Context) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			for i := int32(0); ; i++ {
				select {
				case <-allow:
				case <-ctx.Done():
					yield(input.Element{}, ctx.Err())
					return
				}
				read.Add(1)
				if !yield(input.Leaf(input.Vector(i, i)), nil) {
					return
				}
			}
		}
	}
}

func TestACancelledWaitLosesNothing(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	allow := make(chan struct{})
	var read atomic.Int64
	f, err := feed.FromSeq(context.Background(), s, slow(allow, &read), input.SeqOptions{}, feed.Options{})
	require.NoError(t, err)
	defer f.Close()
	for i := range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_, err := f.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
		allow <- struct{}{}
		batch, err := f.Next(context.Background())
		require.NoError(t, err)
		require.Equal(t, []any{[]int32{int32(i)}, []int32{int32(i)}}, strategytest.Values(t, batch.Values[0], 2))
	}
}

func TestTheEndOfItsContextEndsTheFeed(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	var read atomic.Int64
	ctx, cancel := context.WithCancelCause(context.Background())
	f, err := feed.FromSeq(ctx, s, slow(make(chan struct{}), &read), input.SeqOptions{BatchSize: 2}, feed.Options{})
	require.NoError(t, err)
	defer f.Close()
	time.AfterFunc(5*time.Millisecond, func() { cancel(nil) })
	for range 2 {
		_, err = f.Next(context.Background())
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestCloseEndsAWaitingNext(t *testing.T) {
	leaktest.Check(t)
	s := strategytest.New(t, 2, 1)
	var read atomic.Int64
	allow := make(chan struct{}, 1)
	allow <- struct{}{}
	f, err := feed.FromSeq(context.Background(), s, slow(allow, &read), input.SeqOptions{BatchSize: 2}, feed.Options{})
	require.NoError(t, err)
	batch, err := f.Next(context.Background())
	require.NoError(t, err)
	time.AfterFunc(5*time.Millisecond, func() { _ = f.Close() })
	_, err = f.Next(context.Background())
	require.ErrorIs(t, err, feed.ErrClosed)
	require.NoError(t, f.Close())
	_, err = f.Next(context.Background())
	require.ErrorIs(t, err, feed.ErrClosed)
	_, err = batch.Values[0].Local(context.Background(), 0)
	require.ErrorIs(t, err, strategy.ErrClosed, "its batches are closed with it")
}

func TestAClosedStrategyIsAnError(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	f := open(t, s, pairs(400).Batch(4, true), feed.Options{Depth: 1})
	require.NoError(t, s.Close())
	var err error
	for err == nil {
		_, err = f.Next(context.Background())
	}
	require.ErrorIs(t, err, strategy.ErrClosed)
}

func Example() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer strat.Close()
	f, err := feed.FromDataset(ctx, strat, input.Range(7).Batch(4, false), feed.Options{Partial: feed.Pad})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	for batch, err := range f.All(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		values, _ := strat.LocalResults(ctx, batch.Values[0])
		masks, _ := strat.LocalResults(ctx, batch.Mask)
		fmt.Println(batch.Index, values[0].Value(), values[1].Value(), masks[1].Value())
	}
	// Output:
	// 0 [0 1] [2 3] [true true]
	// 1 [4 5] [6 0] [true false]
}
