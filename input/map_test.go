package input_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestMapKeepsOrderHoweverManyRun(t *testing.T) {
	want := ints(t, input.Range(200))
	for _, parallel := range []int{0, 1, 2, 7} {
		var running, most atomic.Int32
		ds := input.Range(200).Map(func(_ context.Context, e input.Element) (input.Element, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			return e, nil
		}, input.MapOptions{Parallel: parallel})
		assert.Equal(t, want, ints(t, ds))
		assert.LessOrEqual(t, int(most.Load()), max(parallel, 1))
	}
}

func TestMapErrorComesAtItsPlace(t *testing.T) {
	bad := errors.New("bad element")
	for _, parallel := range []int{1, 4} {
		ds := input.Range(50).Map(onIntsErr(func(v int64) error {
			if v == 20 {
				return bad
			}
			return nil
		}), input.MapOptions{Parallel: parallel}).Prefetch(3)
		count := 0
		for _, err := range ds.All(context.Background()) {
			if err != nil {
				assert.ErrorIs(t, err, bad)
				break
			}
			count++
		}
		assert.Equal(t, 20, count)
	}
}

func onIntsErr(f func(int64) error) input.MapFunc {
	return func(_ context.Context, e input.Element) (input.Element, error) {
		v, err := input.Flat[int64](e.Leaf())
		if err == nil {
			err = f(v[0])
		}
		return e, err
	}
}

func TestPrefetchReadsAheadAndStopsAtClose(t *testing.T) {
	var read atomic.Int32
	ds := input.Range(1000).Map(func(_ context.Context, e input.Element) (input.Element, error) {
		read.Add(1)
		return e, nil
	}, input.MapOptions{}).Prefetch(4)
	it, err := ds.Open(context.Background())
	require.NoError(t, err)
	assert.Zero(t, read.Load(), "nothing is read before it is asked for")
	_, err = it.Next(context.Background())
	require.NoError(t, err)
	require.NoError(t, it.Close()) // goleak sees a goroutine that stays
	assert.LessOrEqual(t, read.Load(), int32(7))
	_, err = it.Next(context.Background())
	assert.Error(t, err)
}
