package feed_test

import (
	"context"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// A first batch without rows does not say how many rows the others are padded to.
func TestABatchWithoutRowsIsPaddedToTheRowsOfTheOthers(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	batches := func(rows ...int) func(context.Context) iter.Seq2[input.Element, error] {
		return func(context.Context) iter.Seq2[input.Element, error] {
			return func(yield func(input.Element, error) bool) {
				for _, n := range rows {
					x, err := input.Zeros(input.Float32, n, 3)
					if !yield(input.Leaf(x), err) {
						return
					}
				}
			}
		}
	}
	for _, c := range []struct {
		rows []int
		opts feed.Options
	}{{[]int{4, 0, 4}, feed.Options{}}, {[]int{0, 4}, feed.Options{Rows: 2}}} {
		c.opts.Partial = feed.Pad
		f, err := feed.FromSeq(ctx, s, batches(c.rows...), input.SeqOptions{}, c.opts)
		require.NoError(t, err)
		for _, n := range c.rows {
			batch, err := f.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, []int{n / 2, n / 2}, batch.Rows)
			for r := range 2 {
				x, err := batch.Values[0].Local(ctx, r)
				require.NoError(t, err)
				require.Equal(t, []int{2, 3}, x.Shape().Dimensions)
				mask, err := batch.Mask.Local(ctx, r)
				require.NoError(t, err)
				require.Equal(t, []bool{n > 0, n > 0}, mask.Value())
			}
		}
		require.NoError(t, f.Close())
	}
	f, err := feed.FromSeq(ctx, s, batches(0, 4), input.SeqOptions{}, feed.Options{Partial: feed.Pad})
	require.NoError(t, err)
	_, err = f.Next(ctx)
	var bad *feed.OptionError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "Rows", bad.Option)
	require.NoError(t, f.Close())
}
