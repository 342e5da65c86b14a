package feed

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
)

func TestTheFeedRunsAheadByItsDepth(t *testing.T) {
	plugintest.Path(t, "cpu")
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	// By depth: how many batches are read once so many were handed out.
	for depth, reads := range map[int][]int64{
		1: {1, 2, 3, 4, 5},
		2: {2, 2, 4, 4, 6},
		3: {3, 3, 5, 5, 7},
		4: {4, 4, 4, 7, 7},
	} {
		var read atomic.Int64
		numbers := func(context.Context) iter.Seq2[input.Element, error] {
			return func(yield func(input.Element, error) bool) {
				for i := int32(0); ; i++ {
					read.Add(1)
					if !yield(input.Leaf(input.Vector(i, i)), nil) {
						return
					}
				}
			}
		}
		f, err := FromSeq(ctx, s, numbers, input.SeqOptions{Count: -1}, Options{Depth: depth})
		require.NoError(t, err)
		for handed, want := range reads {
			// All that is read lies ready: how many there are decides what Next gives back.
			require.Eventually(t, func() bool { return len(f.ready) >= int(want)-handed }, 20*time.Second, time.Millisecond, "depth %d after %d", depth, handed)
			time.Sleep(5 * time.Millisecond)
			require.Equal(t, want, read.Load(), "depth %d after %d", depth, handed)
			batch, err := f.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, int64(handed), batch.Index)
		}
		require.NoError(t, f.Close())
	}
}
