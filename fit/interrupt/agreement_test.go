//go:build cgo

package interrupt_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// TestAllProcessesStopAfterTheSameStep gives a notice to one or two processes at any time in a loop
// whose speed differs between the processes.
func TestAllProcessesStopAfterTheSameStep(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, c := range []struct {
		processes, at, second int
		pause                 time.Duration
	}{{2, 1, -1, 0}, {4, 7, 2, 0}, {8, 30, -1, 0}, {4, 3, -1, 5 * time.Millisecond}, {2, 200, -1, 0}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			var stopped [8]int64
			var first atomic.Int64
			errs := strategytest.OnProcesses(t, sys, simhost.Options{Processes: c.processes}, strategy.Options{Replicas: 8},
				func(ctx context.Context, s *strategy.TPUStrategy) error {
					own := make(chan interrupt.Notice, 1)
					ctx, stop := interrupt.Notify(ctx, interrupt.Options{Notices: own})
					defer stop()
					step := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
						return []*graph.Node{rc.AllReduce(strategy.Sum, in[0])}
					}, strategy.FunctionOptions{Name: "step"})
					agreement := interrupt.NewAgreement(s)
					for n := int64(1); ; n++ {
						out, err := step.Run(context.WithoutCancel(ctx), float32(n))
						if err != nil {
							return err
						}
						if err := out[0].Close(); err != nil {
							return err
						}
						time.Sleep(c.pause)
						if last := s.Process() == c.processes-1; last && n == int64(c.at) || s.Process() == c.second &&
							n == int64(c.at)-1 {
							first.CompareAndSwap(0, n)
							own <- interrupt.Notice{Reason: "quota <&> " + strings.Repeat("\x01<", 300)}
							<-ctx.Done()
						}
						stop, err := agreement.AfterStep(ctx, n)
						if err != nil {
							return err
						}
						if stop {
							stopped[s.Process()] = n
							again, err := agreement.AfterStep(ctx, n+1)
							assert.True(t, again)
							if err == nil {
								err = agreement.Close()
							}
							assert.ErrorContains(t, agreement.StopError(n), "quota", "the reason of process %d reaches process %d",
								c.processes-1, s.Process())
							return err
						}
					}
				})
			strategytest.NoErrors(t, errs)
			for i := range c.processes {
				assert.Equal(t, stopped[0], stopped[i])
			}
			// The interval at most doubles with each exchange, so a notice takes effect within
			// twice the number of steps before it.
			assert.LessOrEqual(t, stopped[0], 4*first.Load()+8)
		})
	}
}

// TestTheIntervalFollowsTheTimeOfAStep checks that the interval depends on the step time of the
// slowest process.
func TestTheIntervalFollowsTheTimeOfAStep(t *testing.T) {
	for _, c := range []struct {
		pause        time.Duration
		least, steps int64
	}{{0, 20, 120}, {150 * time.Millisecond, 1, 10}} {
		var asked [2]atomic.Int64
		strategytest.NoErrors(t, strategytest.OnProcesses(t, plugintest.System(t, 2), simhost.Options{Processes: 2},
			strategy.Options{Replicas: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
				agreement := interrupt.NewAgreement(s)
				for n := int64(1); n <= c.steps; n++ {
					if s.Process() == 1 {
						time.Sleep(c.pause)
					}
					if stop, err := agreement.AfterStep(ctx, n); err != nil || stop {
						return fmt.Errorf("stopped %v: %w", stop, err)
					}
					asked[s.Process()].Store(interrupt.Every(agreement))
				}
				return agreement.Close()
			}))
		assert.Equal(t, asked[0].Load(), asked[1].Load(), "the same on all")
		if c.pause > 0 {
			assert.LessOrEqual(t, asked[0].Load(), int64(2))
		} else {
			assert.GreaterOrEqual(t, asked[0].Load(), c.least)
		}
	}
}

func TestAProcessAloneStopsAtOnce(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	agreement := interrupt.NewAgreement(s)
	stop, err := agreement.AfterStep(ctx, 1)
	require.NoError(t, err)
	require.False(t, stop)
	cancel()
	stop, err = agreement.AfterStep(ctx, 2)
	require.NoError(t, err)
	require.True(t, stop)
	assert.Equal(t, 75, interrupt.ExitCodeFor(agreement.StopError(2)))
	require.NoError(t, agreement.Close())
	running := interrupt.NewAgreement(s)
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = running.AfterStep(context.Background(), 3) }))
}

// BenchmarkAgreement compares a loop with an agreement and a loop without one.
func BenchmarkAgreement(b *testing.B) {
	for _, agrees := range []bool{false, true} {
		b.Run(fmt.Sprint("agrees=", agrees), func(b *testing.B) {
			errs := strategytest.OnProcesses(b, plugintest.System(b, 4), simhost.Options{Processes: 2},
				strategy.Options{Replicas: 4}, func(ctx context.Context, s *strategy.TPUStrategy) error {
					step := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
						return []*graph.Node{rc.AllReduce(strategy.Sum, graph.ReduceAllSum(graph.Dot(in[0], in[0]).MatMul()))}
					}, strategy.FunctionOptions{Name: "step"})
					agreement := interrupt.NewAgreement(s)
					x := make([][]float32, 256)
					for i := range x {
						x[i] = make([]float32, 256)
					}
					for n := range int64(b.N) {
						out, err := step.Run(ctx, x)
						if err != nil {
							return err
						}
						if err := out[0].Close(); err != nil {
							return err
						}
						if agrees {
							if _, err := agreement.AfterStep(ctx, n+1); err != nil {
								return err
							}
						}
					}
					return agreement.Close()
				})
			strategytest.NoErrors(b, errs)
		})
	}
}
