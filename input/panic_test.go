package input_test

import (
	"context"
	"io"
	"iter"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

// number returns the number in an element of Range.
func number(e input.Element) int64 { return e.Leaf().Flat().([]int64)[0] }

// moody is a source that panics in selected methods.
type moody struct {
	input.Source
	at string
}

func (m moody) Open(ctx context.Context, pass input.Pass, from input.State) (input.Iterator, error) {
	if m.at == "open" {
		panic("ouch")
	}
	it, err := m.Source.Open(ctx, pass, from)
	return &moodyIterator{Iterator: it, at: m.at}, err
}

func (m moody) ShardFiles(int, int) (input.Source, error) { panic("ouch") }

type moodyIterator struct {
	input.Iterator
	at   string
	seen int
}

func (m *moodyIterator) Next(ctx context.Context) (input.Element, error) {
	if m.seen++; m.at == "next" && m.seen == 5 {
		panic("ouch")
	}
	return m.Iterator.Next(ctx)
}

func (m *moodyIterator) Close() error {
	if m.at == "close" {
		panic("ouch")
	}
	return m.Iterator.Close()
}

// panics are datasets of the numbers from 0 that panic instead of 4.
func panics() map[string]input.Dataset {
	mapped := func(parallel int) input.Dataset {
		return input.Range(40).Map(func(_ context.Context, e input.Element) (input.Element, error) {
			if number(e) == 4 {
				panic("ouch")
			}
			return e, nil
		}, input.MapOptions{Parallel: parallel})
	}
	seq := input.FromSeq(func(context.Context, input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			for i := range int64(4) {
				if !yield(input.Leaf(input.Scalar(i)), nil) {
					return
				}
			}
			panic("ouch")
		}
	}, input.SeqOptions{})
	own := input.New(moody{source{input.Range(40)}, "next"})
	return map[string]input.Dataset{
		"map": mapped(0), "parallel map": mapped(2), "map, prefetch": mapped(0).Prefetch(3),
		"parallel map, prefetch": mapped(3).Prefetch(2),
		"iterator":               seq, "iterator, prefetch": seq.Prefetch(2), "source": own,
		"source, prefetch": own.Prefetch(2),
		"source, parallel map": own.Map(func(_ context.Context, e input.Element) (input.Element, error) { return e, nil },
			input.MapOptions{Parallel: 2}),
		"map, shuffle of one": mapped(0).Shuffle(1, input.ShuffleOptions{}), "map, batches taken apart": mapped(2).Batch(2,
			false).Unbatch(),
	}
}

func requirePanic(t *testing.T, err error) {
	t.Helper()
	var panicked *errkind.PanicError
	require.ErrorAs(t, err, &panicked)
	require.Equal(t, "ouch", panicked.Value)
	require.Contains(t, panicked.Stack, "panic_test.go")
	require.ErrorContains(t, err, "ouch")
}

func TestAPanicIsTheErrorOfItsElement(t *testing.T) {
	ctx := context.Background()
	for name, ds := range panics() {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			it, err := ds.Open(ctx)
			require.NoError(t, err)
			for i := range int64(4) {
				e, err := it.Next(ctx)
				require.NoError(t, err)
				require.Equal(t, i, number(e))
			}
			for range 2 {
				_, err = it.Next(ctx)
				requirePanic(t, err)
			}
			_, err = it.State()
			requirePanic(t, err)
			require.NoError(t, it.Close())
			require.NoError(t, it.Close())
		})
	}
}

func TestAPanicWhileAPositionIsSoughtLeavesNothingOpen(t *testing.T) {
	ctx := context.Background()
	calls := 0
	ds := input.Range(40).Prefetch(1).Map(func(_ context.Context, e input.Element) (input.Element, error) {
		if calls++; calls == 6 {
			panic("ouch")
		}
		return e, nil
	}, input.MapOptions{}).Prefetch(2)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	it, err := ds.Open(ctx)
	require.NoError(t, err)
	for range 2 {
		_, err = it.Next(ctx)
		require.NoError(t, err)
	}
	at, err := it.State()
	require.NoError(t, err)
	require.NoError(t, it.Close())
	calls = 4 // the second element that is read again panics
	_, err = ds.OpenAt(ctx, input.Pass{}, at)
	requirePanic(t, err)
}

func TestAPanicOfASourceIsAnErrorOfTheCall(t *testing.T) {
	ctx := context.Background()
	sick := func(at string) input.Dataset { return input.New(moody{source{input.Range(40)}, at}) }
	_, err := sick("open").Take(3).Open(ctx)
	requirePanic(t, err)
	_, err = sick("open").Prefetch(2).Open(ctx)
	requirePanic(t, err)
	_, err = sick("open").Concatenate(input.Range(1)).Repeat(2).Open(ctx)
	requirePanic(t, err)

	it, err := sick("close").Prefetch(2).Open(ctx)
	require.NoError(t, err)
	_, err = it.Next(ctx)
	require.NoError(t, err)
	requirePanic(t, it.Close())

	_, err = input.Distribute(sick("").Batch(2, true), input.Options{Processes: 2, Replicas: 2, Policy: input.File})
	requirePanic(t, err)
	_, err = input.FromFunction(func(input.Context) (input.Dataset, error) { panic("ouch") }, input.Options{})
	requirePanic(t, err)
	_, err = input.FromSeq(func(context.Context, input.Pass) iter.Seq2[input.Element, error] { panic("ouch") },
		input.SeqOptions{}).Open(ctx)
	requirePanic(t, err)
}

func TestAnIteratorThatPanicsWhenItIsStoppedFailsTheClose(t *testing.T) {
	ctx := context.Background()
	ds := input.FromSeq(func(context.Context, input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			defer func() { panic("ouch") }()
			yield(input.Leaf(input.Scalar(int64(0))), nil)
		}
	}, input.SeqOptions{})
	it, err := ds.Open(ctx)
	require.NoError(t, err)
	_, err = it.Next(ctx)
	require.NoError(t, err)
	requirePanic(t, it.Close())

	it, err = ds.Open(ctx)
	require.NoError(t, err)
	require.NoError(t, it.Close(), "it never ran")
}

func TestAFunctionThatEndsItsGoroutineIsAnError(t *testing.T) {
	ctx := context.Background()
	exit := func(_ context.Context, e input.Element) (input.Element, error) {
		if number(e) == 2 {
			runtime.Goexit()
		}
		return e, nil
	}
	for name, ds := range map[string]input.Dataset{
		"parallel map":  input.Range(9).Map(exit, input.MapOptions{Parallel: 2}),
		"map, prefetch": input.Range(9).Map(exit, input.MapOptions{}).Prefetch(2),
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			it, err := ds.Open(ctx)
			require.NoError(t, err)
			for i := range int64(2) {
				e, err := it.Next(ctx)
				require.NoError(t, err)
				require.Equal(t, i, number(e))
			}
			for range 2 {
				_, err = it.Next(ctx)
				require.ErrorContains(t, err, "ended its goroutine")
				require.NotErrorIs(t, err, io.EOF)
			}
			require.NoError(t, it.Close())
		})
	}
}
