package strategy_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestAMissingProcessIsNamedByTheBarrier(t *testing.T) {
	sys := plugintest.System(t, 4)
	for i, err := range strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4, Patience: 30 * time.Second},
		strategy.Options{}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			if s.Process() == 3 {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			return s.Barrier(ctx, "start")
		}) {
		if i != 3 {
			assert.ErrorContains(t, err, "process 3", "process %d", i)
			assert.ErrorContains(t, err, "barrier start", "process %d", i)
		}
	}
}

func TestProcessesExchangeSmallValues(t *testing.T) {
	sys := plugintest.System(t, 8)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{Replicas: 4,
		LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		for _, size := range []int{0, 1, 900, 1020, 1100, 5000, 100_000} {
			mine := []byte(strings.Repeat(fmt.Sprint(s.Process()), size+s.Process()))
			got, err := s.GatherBytes(ctx, "sizes", mine)
			if err != nil {
				return err
			}
			for i, value := range got {
				assert.Equal(t, strings.Repeat(fmt.Sprint(i), size+i), string(value))
			}
		}
		first, err := s.BroadcastBytes(ctx, "seed", []byte{byte(40 + s.Process())})
		if err != nil {
			return err
		}
		assert.Equal(t, []byte{40}, first)
		for _, who := range []int{-1, 0, 3} {
			any, err := s.AnyProcess(ctx, s.Process() == who)
			if err != nil {
				return err
			}
			assert.Equal(t, who >= 0, any)
		}
		_, err = s.GatherBytes(ctx, "much", make([]byte, 2<<20))
		assert.ErrorContains(t, err, "are the most")
		return s.Barrier(ctx, "end")
	}))
	strat := strategytest.New(t, 2, 1)
	got, err := strat.GatherBytes(context.Background(), "alone", []byte("me"))
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("me")}, got)
}

func TestABarrierHoldsUntilAllCome(t *testing.T) {
	sys := plugintest.System(t, 4)
	var mu sync.Mutex
	came := 0
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			time.Sleep(time.Duration(s.Process()) * 10 * time.Millisecond)
			mu.Lock()
			came++
			mu.Unlock()
			if err := s.Barrier(ctx, "all"); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, 4, came)
			return nil
		}))
}
