package feed_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

func TestABatchIsThereUntilTheNext(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	for _, opts := range []feed.Options{{}, {Depth: 5, Partial: feed.Pad}} {
		f := open(t, s, pairs(12).Batch(4, true), opts)
		var before *feed.Batch
		for batch, err := range f.All(ctx) {
			require.NoError(t, err)
			if before != nil {
				_, err := before.Values[0].Local(ctx, 0)
				require.ErrorIs(t, err, strategy.ErrClosed)
			}
			strategytest.Values(t, batch.Values[0], 2)
			before = batch
		}
		require.NoError(t, f.Close())
		_, err := before.Values[0].Local(ctx, 0)
		require.ErrorIs(t, err, strategy.ErrClosed)
	}
}
