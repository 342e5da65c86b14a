package feed

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestTheFeedRunsAheadByItsDepth(t *testing.T) {
	plugintest.Path(t, "cpu")
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	// The number of batches that were read, by depth and number of returned batches.
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
			// All batches that were read are ready. Their number decides how many slots Next frees.
			require.Eventually(t, func() bool { return len(f.ready) >= int(want)-handed }, 20*time.Second, time.Millisecond,
				"depth %d after %d", depth, handed)
			time.Sleep(5 * time.Millisecond)
			require.Equal(t, want, read.Load(), "depth %d after %d", depth, handed)
			batch, err := f.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, int64(handed), batch.Index)
		}
		require.NoError(t, f.Close())
	}
}

// With KeepOnHost the feed reads the same number of batches ahead and copies none of them before
// Next.
func TestAFeedKeepsBatchesOnTheHostUntilTheyAreAskedFor(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	dataset := input.Range(22).Batch(4, false)
	for name, keep := range map[string]bool{"ahead": false, "kept": true} {
		d, err := Distribute(s, dataset, DistributeOptions{KeepOnHost: keep})
		require.NoError(t, err)
		f, err := New(ctx, s, d, Options{Depth: 3, Partial: Pad})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(f.ready) == 3 }, 20*time.Second, time.Millisecond)
		for range 3 { // look at them and put them back
			next := <-f.ready
			require.Equal(t, keep, next.batch == nil, "%s: a batch is on the devices", name)
			f.ready <- next
		}
		var rows []any
		var before *Batch
		for batch, err := range f.All(ctx) {
			require.NoError(t, err)
			if before != nil {
				_, err := before.Values[0].Local(ctx, 0)
				require.ErrorIs(t, err, strategy.ErrClosed)
			}
			last, err := batch.Values[0].Local(ctx, 1)
			require.NoError(t, err)
			mask, err := batch.Mask.Local(ctx, 1)
			require.NoError(t, err)
			rows, before = append(rows, last.Value(), mask.Value()), batch
		}
		require.Len(t, rows, 12, name)
		require.Equal(t, []any{[]int64{18, 19}, []bool{true, true}}, rows[8:10], name)
		require.Equal(t, []any{[]int64{21, 0}, []bool{true, false}}, rows[10:], name)
		require.NoError(t, f.Close())
	}
	// An annotation that does not fit is an error of Next, and no buffer remains allocated.
	d, err := Distribute(s, input.Range(6).Batch(4, false).Batch(1, false), DistributeOptions{KeepOnHost: true,
		Arguments: []logical.Annotation{logical.SplitInto(1, 1, 1)}})
	require.NoError(t, err)
	f, err := New(ctx, s, d, Options{})
	require.NoError(t, err)
	_, err = f.Next(ctx)
	require.Error(t, err)
	_, again := f.Next(ctx)
	require.Equal(t, err, again)
	require.NoError(t, f.Close())
}
