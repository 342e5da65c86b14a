package input_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// pass is the numbers of one pass, by replica.
func pass(t *testing.T, d *input.DistributedDataset, from input.State, most int) (rows []int64, at input.State) {
	t.Helper()
	ctx := context.Background()
	steps, err := d.OpenAt(ctx, from)
	require.NoError(t, err)
	defer steps.Close()
	for range most {
		step, err := steps.Next(ctx)
		if err != nil {
			break
		}
		for _, e := range step.Replicas {
			rows = append(rows, e.Leaf().Flat().([]int64)...)
		}
	}
	at, err = steps.State()
	require.NoError(t, err)
	return rows, at
}

// A second pass has another order, like TensorFlow's reshuffle_each_iteration.
func TestEachPassShufflesAnew(t *testing.T) {
	for _, opts := range []input.Options{{}, {Replicas: 2}, {Replicas: 2, Rule: input.Sizes}} {
		data := func(o input.ShuffleOptions) input.Dataset { return input.Range(64).Shuffle(64, o).Batch(8, true) }
		d, err := input.Distribute(data(input.ShuffleOptions{Seed: 7}), opts)
		require.NoError(t, err)
		var passes [][]int64
		for range 3 {
			rows, _ := pass(t, d, input.State{}, 100)
			require.Len(t, rows, 64)
			for _, other := range passes {
				require.NotEqual(t, other, rows, "another order")
			}
			passes = append(passes, rows)
			sorted := slices.Sorted(slices.Values(rows))
			require.Equal(t, int64(63), sorted[63])
		}
		// A loop that calls Distribute for each pass has the same orders.
		for epoch, want := range passes {
			o := opts
			o.Epoch = uint64(epoch)
			again, err := input.Distribute(data(input.ShuffleOptions{Seed: 7}), o)
			require.NoError(t, err)
			rows, _ := pass(t, again, input.State{}, 100)
			require.Equal(t, want, rows)
		}
		// Unless told.
		same, err := input.Distribute(data(input.ShuffleOptions{Seed: 7, SameEachEpoch: true}), opts)
		require.NoError(t, err)
		first, _ := pass(t, same, input.State{}, 100)
		second, _ := pass(t, same, input.State{}, 100)
		require.Equal(t, first, second)
	}
}

// A position of a later pass resumes that pass, also in another process, and the following pass is
// the next one.
func TestAPositionNamesItsPass(t *testing.T) {
	open := func() *input.DistributedDataset {
		d, err := input.Distribute(input.Range(64).Repeat(2).Shuffle(16, input.ShuffleOptions{}).Batch(8, true),
			input.Options{Replicas: 2})
		require.NoError(t, err)
		return d
	}
	d := open()
	var passes [][]int64
	for range 4 {
		rows, _ := pass(t, d, input.State{}, 100)
		passes = append(passes, rows)
	}
	for n := range 3 {
		d := open()
		for range n {
			pass(t, d, input.State{}, 1)
		}
		begun, at := pass(t, d, input.State{}, 3)
		fresh := open()
		rest, _ := pass(t, fresh, at, 100)
		require.Equal(t, passes[n], append(begun, rest...), "pass %d", n)
		next, _ := pass(t, fresh, input.State{}, 100)
		require.Equal(t, passes[n+1], next, "the pass after pass %d", n)
	}
}
