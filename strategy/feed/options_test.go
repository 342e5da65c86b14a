package feed_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

func TestOptionsThatDoNotFitAreNamed(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	d := distribute(t, s, pairs(8).Batch(4, true))
	for option, opts := range map[string]feed.Options{
		"Depth": {Depth: -1}, "Partial": {Partial: 9}, "Rows": {Rows: 4},
	} {
		_, err := feed.New(ctx, s, d, opts)
		require.ErrorContains(t, err, "feed: option "+option)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	for _, depth := range []int{math.MaxInt, 1 << 40, 1<<16 + 1} {
		_, err := feed.New(ctx, s, d, feed.Options{Depth: depth})
		assert.EqualError(t, err, fmt.Sprintf("feed: option Depth: %d steps; at most 65536", depth))
	}
	_, err := feed.New(ctx, nil, d, feed.Options{})
	require.Error(t, err)
	_, err = feed.New(ctx, s, nil, feed.Options{})
	require.Error(t, err)
	four, err := input.Distribute(pairs(8).Batch(4, true), input.Options{Replicas: 4})
	require.NoError(t, err)
	_, err = feed.New(ctx, s, four, feed.Options{})
	require.ErrorContains(t, err, "Replicas 2")
	_, err = feed.FromDataset(ctx, s, pairs(8), feed.Options{})
	require.ErrorContains(t, err, "batch")
	_, err = feed.FromSeq(ctx, s, nil, input.SeqOptions{}, feed.Options{})
	require.Error(t, err)
}

func TestPartialNames(t *testing.T) {
	names := []string{feed.Exact.String(), feed.Pad.String(), feed.Partial(7).String()}
	require.True(t, slices.Equal([]string{"Exact", "Pad", "Partial(7)"}, names), strings.Join(names, " "))
}
