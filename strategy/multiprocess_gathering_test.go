package strategy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// TestAGatheringIsReadLater starts gathers between steps and other exchanges, and reads each of
// them late, twice or never.
func TestAGatheringIsReadLater(t *testing.T) {
	strategytest.NoErrors(t, strategytest.OnProcesses(t, plugintest.System(t, 4), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 2, LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			var under []*engine.GatherFuture
			for i := range 4 {
				g, err := engine.Internal(s).StartGather(ctx, "late", fmt.Appendf(nil, "%d of %d", i, s.Process()))
				if err != nil {
					return err
				}
				under = append(under, g)
			}
			if err := s.Barrier(ctx, "between"); err != nil {
				return err
			}
			for range 2 {
				got, err := under[2].Wait(ctx)
				if err != nil {
					return err
				}
				assert.Equal(t, [][]byte{[]byte("2 of 0"), []byte("2 of 1")}, got)
			}
			for _, g := range under {
				if err := g.Close(); err != nil {
					return err
				}
			}
			_, err := under[0].Wait(ctx)
			assert.ErrorIs(t, err, strategy.ErrClosed)
			got, err := under[2].Wait(ctx)
			assert.NoError(t, err, "what was read stays")
			assert.Len(t, got, 2)

			_, err = engine.Internal(s).StartGather(ctx, "much", []byte(strings.Repeat("x", 500)))
			assert.ErrorContains(t, err, "use GatherBytes")
			g, err := engine.Internal(s).StartGather(ctx, "most", []byte(strings.Repeat("x", 493)))
			if err != nil {
				return err
			}
			if got, err = g.Wait(ctx); err == nil {
				assert.Len(t, got[1], 493)
			}
			return err
		}))
	g, err := engine.Internal(strategytest.New(t, 2, 1)).StartGather(t.Context(), "alone", []byte("me"))
	require.NoError(t, err)
	got, err := g.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("me")}, got)
	require.NoError(t, g.Close())
}

// TestAGatheringThatMeetsAnotherCallSaysSo checks the error of processes that are out of step.
func TestAGatheringThatMeetsAnotherCallSaysSo(t *testing.T) {
	for _, err := range strategytest.OnProcesses(t, plugintest.System(t, 2), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			if s.Process() == 1 {
				return s.Barrier(ctx, "end")
			}
			g, err := engine.Internal(s).StartGather(ctx, "vote", nil)
			if err != nil {
				return err
			}
			_, err = g.Wait(ctx)
			return err
		}) {
		require.ErrorIs(t, err, strategy.ErrOutOfStep)
		assert.ErrorContains(t, err, "process 0 is at gather vote, process 1 is at barrier end;")
	}
}
