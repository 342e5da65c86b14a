package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// scale returns a step that depends on a factor.
func multiplyBy(s *strategy.TPUStrategy, factor float64) *strategy.Function {
	return s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, graph.MulScalar(in[0], factor))}
	}, strategy.FunctionOptions{Name: "scale", LocalBatch: true})
}

func ones(n int) *tensors.Tensor { return tensors.FromScalarAndDimensions(float32(1), n) }

// run runs a step and reads its result.
func run(ctx context.Context, f *strategy.Function, s *strategy.TPUStrategy, n int) error {
	out, err := f.Run(ctx, ones(n))
	if err != nil {
		return err
	}
	_, err = out[0].Local(ctx, s.LocalReplicas()[0])
	return errors.Join(err, out[0].Close())
}

func TestADifferenceBetweenProcessesIsAnErrorOnAll(t *testing.T) {
	sys := plugintest.System(t, 4)
	for name, c := range map[string]struct {
		program func(ctx context.Context, s *strategy.TPUStrategy, odd bool) error
		what    string
		text    string // text of the process that differs
	}{
		"another program": {what: `program "scale"`, text: "Float32[1]", program: func(ctx context.Context,
			s *strategy.TPUStrategy, odd bool) error {
			factor := 2.0
			if odd {
				factor = 3
			}
			return run(ctx, multiplyBy(s, factor), s, 1)
		}},
		"another large constant": {what: `program "sum"`, text: "Int64", program: func(ctx context.Context,
			s *strategy.TPUStrategy, odd bool) error {
			table, _ := tableOf(0)
			if odd {
				table, _ = tableOf(1)
			}
			_, err := sum(s, table).Run(ctx, int64(1))
			return err
		}},
		"another data size": {what: `program "scale"`, text: "Float32[5]", program: func(ctx context.Context,
			s *strategy.TPUStrategy, odd bool) error {
			n := 4
			if odd {
				n = 5
			}
			return run(ctx, multiplyBy(s, 2), s, n)
		}},
		"a program that cannot be traced": {what: `program "scale"`, text: "no program, because of strategy: tracing scale",
			program: func(ctx context.Context, s *strategy.TPUStrategy, odd bool) error {
				f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
					if odd {
						panic(errors.New("no weights here"))
					}
					return in
				}, strategy.FunctionOptions{Name: "scale"})
				_, err := f.Run(ctx, ones(2))
				var own *strategy.TraceError
				if odd && assert.ErrorAs(t, err, &own) {
					err = &strategy.MismatchError{What: `program "scale"`, Texts: make([]string, 4), Differing: []int{2}}
					err.(*strategy.MismatchError).Texts[2] = "no program, because of strategy: tracing scale"
				}
				return err
			}},
		"another setting": {what: "batch size", text: "128", program: func(ctx context.Context, s *strategy.TPUStrategy,
			odd bool) error {
			size := "64"
			if odd {
				size = "128"
			}
			return s.CheckSame(ctx, "batch size", size)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			errs := strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4, Patience: 20 * time.Second},
				strategy.Options{}, func(ctx context.Context, s *strategy.TPUStrategy) error {
					return c.program(ctx, s, s.Process() == 2)
				})
			assert.Less(t, time.Since(start), 15*time.Second, "nobody waits for a deadline")
			for i, err := range errs {
				var mismatch *strategy.MismatchError
				require.ErrorAs(t, err, &mismatch, "process %d", i)
				assert.Equal(t, c.what, mismatch.What)
				assert.Equal(t, []int{2}, mismatch.Differing)
				assert.Contains(t, mismatch.Texts[2], c.text)
				assert.Contains(t, err.Error(), "process 2 has "+mismatch.Texts[2])
				assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
			}
		})
	}
}

func TestProcessesThatAgreeGoOn(t *testing.T) {
	sys := plugintest.System(t, 4)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			f := multiplyBy(s, 2)
			for _, n := range []int{3, 4, 3} { // compiled twice
				if err := run(ctx, f, s, n); err != nil {
					return err
				}
			}
			table, want := tableOf(1)
			out, err := sum(s, table).Run(ctx, int64(1))
			if err != nil {
				return err
			}
			got, err := out[0].Local(ctx, s.LocalReplicas()[0])
			if err == nil && got.Value() != want+1 {
				err = fmt.Errorf("%v with a large constant, want %d", got.Value(), want+1)
			}
			return errors.Join(err, s.CheckSame(ctx, "seed", "1"))
		}))
}

func TestProcessesOutOfStepAreToldSo(t *testing.T) {
	sys := plugintest.System(t, 4)
	for i, err := range strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2, Patience: 20 * time.Second},
		strategy.Options{}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			if s.Process() == 1 {
				return s.Barrier(ctx, "end of epoch")
			}
			_, err := s.GatherBytes(ctx, "losses", []byte("0.5"))
			return err
		}) {
		require.ErrorIs(t, err, strategy.ErrOutOfStep, "process %d", i)
		assert.ErrorContains(t, err, "process 0 is at gather losses, process 1 is at barrier end of epoch;")
		assert.Equal(t, errkind.RuntimeError, errkind.KindOf(err))
	}
}

func TestAnAbsentProcessEndsTheOthersWaitByTheirDeadline(t *testing.T) {
	sys := plugintest.System(t, 4)
	const deadline = 1500 * time.Millisecond
	var others *sync.WaitGroup // until the other processes have given up
	for name, c := range map[string]struct {
		odd   func(ctx context.Context, s *strategy.TPUStrategy, step int) (end bool, err error)
		check func(t *testing.T, err error)
	}{
		"late": {
			odd: func(context.Context, *strategy.TPUStrategy, int) (bool, error) {
				others.Wait()
				return false, nil
			},
			check: func(t *testing.T, err error) {
				var missing *simhost.MissingError
				require.ErrorAs(t, err, &missing)
				assert.Equal(t, []int{2}, missing.Missing)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			},
		},
		"dead": {
			odd: func(context.Context, *strategy.TPUStrategy, int) (bool, error) { return true, nil },
			check: func(t *testing.T, err error) {
				var lost *simhost.LostError
				require.ErrorAs(t, err, &lost)
				assert.Equal(t, 2, lost.Process)
			},
		},
		"at another program": {
			odd: func(ctx context.Context, s *strategy.TPUStrategy, _ int) (bool, error) {
				return true, s.Barrier(ctx, "elsewhere")
			},
			check: func(t *testing.T, err error) {
				var different *simhost.ProgramError
				require.ErrorAs(t, err, &different)
				assert.ErrorContains(t, err, `process 2 launches "exchange"`)
				assert.ErrorContains(t, err, `launches "scale"`)
			},
		},
		"with more data in a later step": {
			odd: func(ctx context.Context, s *strategy.TPUStrategy, _ int) (bool, error) {
				return true, run(ctx, multiplyBy(s, 2), s, 9)
			},
			check: func(t *testing.T, err error) {
				var different *simhost.ProgramError
				require.ErrorAs(t, err, &different)
				assert.ErrorContains(t, err, "process 2 launches")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			steps := map[int]int{}
			var met sync.WaitGroup
			others = new(sync.WaitGroup)
			met.Add(4)
			others.Add(3)
			errs := strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4, Patience: 30 * time.Second},
				strategy.Options{}, func(ctx context.Context, s *strategy.TPUStrategy) error {
					meets := sync.OnceFunc(met.Done)
					defer meets()
					if s.Process() != 2 {
						defer others.Done()
					}
					f := multiplyBy(s, 2)
					for step := range 5 {
						limit := 20 * time.Second // for the compilation, and while all processes are present
						if step >= 2 {
							limit = deadline
						}
						if step == 2 {
							meets()
							met.Wait() // only the differing process is late
							if s.Process() == 2 {
								if end, err := c.odd(ctx, s, step); end {
									return err
								}
							}
						}
						bounded, cancel := context.WithTimeout(ctx, limit)
						start := time.Now()
						err := run(bounded, f, s, 4)
						cancel()
						if err != nil {
							if took := time.Since(start); took > limit+5*time.Second {
								return fmt.Errorf("the error came after %v: %w", took, err)
							}
							return err
						}
						mu.Lock()
						steps[s.Process()]++
						mu.Unlock()
					}
					return nil
				})
			for i, err := range errs {
				assert.Equal(t, 2, steps[i], "process %d", i)
				if i != 2 {
					c.check(t, err)
				}
			}
		})
	}
}
