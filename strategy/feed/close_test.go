package feed

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestCloseReleasesWhatIsReady(t *testing.T) {
	plugintest.Path(t, "cpu")
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	f, err := FromDataset(ctx, s, input.Range(40).Batch(4, true), Options{Depth: 3, Partial: Pad})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(f.ready) == 3 }, 5*time.Second, time.Millisecond)
	var ready []*Batch
	for range 3 { // look at them and put them back
		next := <-f.ready
		ready = append(ready, next.batch)
		f.ready <- next
	}
	require.NoError(t, f.Close())
	for _, batch := range ready {
		for _, v := range []strategy.Value{batch.Values[0], batch.Mask} {
			_, err := v.Local(ctx, 0)
			require.ErrorIs(t, err, strategy.ErrClosed)
		}
	}
}
