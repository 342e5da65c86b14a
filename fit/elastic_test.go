package fit_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// fileNumbers is a dataset of numbered examples in files of different lengths.
func fileNumbers(t *testing.T) input.Dataset {
	t.Helper()
	dir, next := t.TempDir(), 1
	var paths []string
	for i := range 8 {
		var lines strings.Builder
		for range 5 + 3*i%7 {
			fmt.Fprintln(&lines, next)
			next++
		}
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
		require.NoError(t, os.WriteFile(paths[i], []byte(lines.String()), 0o600))
	}
	spec := input.Tuple(input.Leaf(input.TensorSpec{Kind: input.Float32, Dims: []int{8}}),
		input.Leaf(input.TensorSpec{Kind: input.Float32, Dims: []int{1}}))
	return input.Lines(paths, input.FileOptions{}).Map(func(_ context.Context, e input.Element) (input.Element, error) {
		text, err := input.Flat[string](e.Leaf())
		if err != nil {
			return e, err
		}
		var n float32
		_, err = fmt.Sscan(text[0], &n)
		x := make([]float32, 8)
		for i := range x {
			x[i] = float32((int(n)+i)%17) / 17
		}
		return input.Tuple(input.Leaf(input.Vector(x...)), input.Leaf(input.Vector(n))), err
	}, input.MapOptions{Spec: spec, Parallel: 2}).Shuffle(11, input.ShuffleOptions{Seed: 4}).Repeat(-1).Batch(16, true)
}

// stage is the configuration of a run until it is interrupted after a step.
type stage struct {
	replicas, logical, processes int
	until                        int64
}

// stages runs a run in stages. A notice of the last process interrupts each stage.
func stages(t *testing.T, data func() fit.Data, steps int64, all ...stage) string {
	t.Helper()
	sys, dir := plugintest.System(t, 8), t.TempDir()
	numbers := func(power int) func(*strategy.ReplicaContext, []*graph.Node) (values, weights *graph.Node) {
		return func(_ *strategy.ReplicaContext, in []*graph.Node) (values, weights *graph.Node) {
			return graph.PowScalar(graph.Reshape(in[1], -1), power), nil
		}
	}
	for i, st := range all {
		errs := strategytest.OnProcesses(t, sys, simhost.Options{Processes: st.processes},
			strategy.Options{Replicas: st.replicas, LogicalDevices: st.logical},
			func(ctx context.Context, s *strategy.TPUStrategy) error {
				own := make(chan interrupt.Notice, 1)
				ctx, stop := interrupt.Notify(ctx, interrupt.Options{Signals: []os.Signal{}, Notices: own})
				defer stop()
				step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
					denseLoss(2), train.Options{Metrics: []train.Metric{
						{Name: "examples", Values: numbers(1), Form: train.Total}, {Name: "squares", Values: numbers(2),
							Form: train.Total}}}))
				_, err := fit.Run(ctx, step, data(), fit.Options{Steps: steps, Every: 1, Resume: true},
					fit.CSV(filepath.Join(dir, "table.csv")),
					fit.Checkpoint(filepath.Join(dir, "run"), 0), fit.Hook{Name: "notice", Record: func(_ context.Context,
						s *fit.State) error {
						if s.Step() == st.until && s.Strategy().Process() == st.processes-1 {
							own <- interrupt.Notice{Reason: "moving"}
							<-ctx.Done()
						}
						return nil
					}})
				return err
			})
		for p, err := range errs {
			if i == len(all)-1 {
				require.NoError(t, err, "process %d of %+v", p, st)
			} else {
				require.Equal(t, interrupt.ExitCode, interrupt.ExitCodeFor(err), "process %d of %+v: %v", p, st, err)
			}
		}
		point, err := fit.LatestSnapshot(t.Context(), filepath.Join(dir, "run"))
		require.NoError(t, err)
		assert.Equal(t, min(st.until, steps), point.Step)
	}
	table, err := os.ReadFile(filepath.Join(dir, "table.csv"))
	require.NoError(t, err)
	return string(table)
}

const never = int64(1) << 40

// TestARunGoesOnWithOtherProcessesReplicasAndDevices checks that each step uses the same examples
// as in an uninterrupted run, and that the losses are equal up to rounding.
func TestARunGoesOnWithOtherProcessesReplicasAndDevices(t *testing.T) {
	files, memory := fileNumbers(t), numbered(t)
	for name, c := range map[string]struct {
		data   func() fit.Data
		stages []stage
	}{
		"files": {func() fit.Data { return fit.Dataset(files) },
			[]stage{{4, 2, 4, 1}, {8, 1, 8, 3}, {2, 4, 8, 5}, {1, 1, 1, 6}, {2, 4, 2, never}}},
		"files of one process": {func() fit.Data { return fit.Dataset(files) }, []stage{{2, 1, 1, 3}, {8, 1, 4, never}}},
		"memory": {func() fit.Data { return fit.Dataset(memory.Repeat(-1)) },
			[]stage{{2, 1, 1, 1}, {4, 2, 8, 5}, {2, 2, 1, never}}},
		"a function": {func() fit.Data { return fit.Batches(globalBatches) },
			[]stage{{2, 1, 1, 1}, {8, 1, 4, never}}},
	} {
		t.Run(name, func(t *testing.T) {
			first := c.stages[0]
			first.until = never
			want := contents(t, stages(t, c.data, 8, first))
			got := contents(t, stages(t, c.data, 8, c.stages...))
			require.Len(t, got, len(want))
			for i, row := range got {
				for _, name := range []string{"step", "examples", "squares"} {
					assert.Equal(t, want[i][name], row[name], "row %d", i)
				}
				assert.InDelta(t, 1, row[fit.Loss]/want[i][fit.Loss], 1e-4, "row %d", i)
			}
		})
	}
}

// TestARunOfEqualReplicasHasTheSameLossesOnAnyProcesses checks that the losses are equal in every
// digit.
func TestARunOfEqualReplicasHasTheSameLossesOnAnyProcesses(t *testing.T) {
	files, memory := fileNumbers(t), numbered(t)
	for name, data := range map[string]func() fit.Data{
		"files":  func() fit.Data { return fit.Dataset(files) },
		"memory": func() fit.Data { return fit.Dataset(memory.Repeat(-1)) },
	} {
		t.Run(name, func(t *testing.T) {
			first := map[string]int{"files": 4, "memory": 1}[name]
			want := stages(t, data, 7, stage{4, 2, first, never})
			got := stages(t, data, 7, stage{4, 2, first, 2}, stage{4, 2, 8, 3}, stage{4, 2, 2, 5}, stage{4, 2, 1, never})
			assert.Equal(t, want, got)
		})
	}
}

func globalBatches(yield func([]any, error) bool) {
	for i := 0; ; i++ {
		xs, ys := make([][]float32, 8), make([][]float32, 8)
		for r := range xs {
			xs[r], ys[r] = make([]float32, 8), []float32{float32(8*i + r)}
			xs[r][i%8] = float32(r) / 8
		}
		if !yield([]any{xs, ys}, nil) {
			return
		}
	}
}
