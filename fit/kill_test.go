//go:build unix

package fit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Examples of killed runs. Their targets are their numbers, and the table contains the sums.
const passBatches, passRows = 5, 8

func numbered(t testing.TB) input.Dataset {
	t.Helper()
	n := passBatches * passRows
	xs, ys := make([]float32, n*8), make([]float32, n)
	for i := range xs {
		xs[i] = float32(i%17) / 17
	}
	for i := range ys {
		ys[i] = float32(i + 1)
	}
	x, err := input.NewTensor(xs, n, 8)
	require.NoError(t, err)
	y, err := input.NewTensor(ys, n, 1)
	require.NoError(t, err)
	return input.FromSlices(input.Tuple(input.Leaf(x), input.Leaf(y))).Shuffle(16,
		input.ShuffleOptions{Seed: 5}).Batch(passRows, true)
}

// killedRun is a run of four passes that can be killed.
func killedRun(t testing.TB, s *strategy.TPUStrategy, dir string, hooks ...fit.Hook) (fit.Result, error) {
	t.Helper()
	numbers := func(power int) func(*strategy.ReplicaContext, []*graph.Node) (values, weights *graph.Node) {
		return func(_ *strategy.ReplicaContext, in []*graph.Node) (values, weights *graph.Node) {
			return graph.PowScalar(graph.Reshape(in[1], -1), power), nil
		}
	}
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.1).Done(),
		denseLoss(2), train.Options{Metrics: []train.Metric{
			{Name: "examples", Values: numbers(1), Form: train.Total}, {Name: "squares", Values: numbers(2),
				Form: train.Total}}}))
	return fit.Run(context.Background(), step, fit.Dataset(numbered(t)), fit.Options{Epochs: 4, Every: 1, Resume: true},
		append([]fit.Hook{
			fit.CSV(filepath.Join(dir, "table.csv")), fit.CSV("file://" + filepath.Join(dir, "store", "table.csv")),
			fit.Events(filepath.Join(dir, "events")),
			fit.KeepBest(filepath.Join(dir, "best"), fit.Loss), fit.Checkpoint(filepath.Join(dir, "run"), 4)}, hooks...)...)
}

// TestKilledChild is the process that TestKilledRunsGoOn starts and kills, or that kills itself at
// a given point.
func TestKilledChild(t *testing.T) {
	dir := os.Getenv("FIT_TEST_KILLED")
	if dir == "" {
		t.Skip("TestKilledRunsGoOn starts this")
	}
	where, text, _ := strings.Cut(os.Getenv("FIT_TEST_WHERE"), " ")
	at, _ := strconv.ParseInt(text, 10, 64)
	last := int64(0)
	kill := func(here string, step int64) error {
		if last = step; here == where && step == at {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if where == "outside" {
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	}
	_, err := killedRun(t, strategytest.New(t, 2, 1), dir, fit.Hook{Name: "killer",
		Measure: func(_ context.Context, s *fit.State) error { return kill("measure", s.Step()) },
		Record:  func(_ context.Context, s *fit.State) error { return kill("record", s.Step()) },
		Save:    func() ([]byte, error) { return nil, kill("save", last) },
		End:     func(_ context.Context, s *fit.State, _ error) error { return kill("end", s.Step()) },
	})
	require.NoError(t, err)
}

// TestKilledRunsGoOn kills a run with SIGKILL at many points. At the end its table equals the table
// of a run that was not killed, in every digit, and each example is used once in each pass.
func TestKilledRunsGoOn(t *testing.T) {
	plugintest.Path(t, "cpu")
	whole, dir := t.TempDir(), t.TempDir()
	result, err := killedRun(t, strategytest.New(t, 2, 1), whole)
	require.NoError(t, err)
	require.Equal(t, int64(4*passBatches), result.Step)
	want, err := os.ReadFile(filepath.Join(whole, "table.csv"))
	require.NoError(t, err)

	table := filepath.Join(dir, "table.csv")
	child := func(where string) *exec.Cmd {
		c := exec.Command(os.Args[0], "-test.run=^TestKilledChild$", "-test.v")
		c.Env = append(os.Environ(), "FIT_TEST_KILLED="+dir, "FIT_TEST_WHERE="+where)
		return c
	}
	for _, where := range []string{"measure 3", "record 6", "save 8", "outside", "end 20", "done"} {
		c := child(where)
		var out strings.Builder
		c.Stdout, c.Stderr = &out, &out
		require.NoError(t, c.Start())
		if where == "outside" { // at any time between 12 rows and the end
			require.Eventually(t, func() bool {
				data, err := os.ReadFile(table)
				return err == nil && strings.Count(string(data), "\n") > 12
			}, time.Minute, time.Millisecond)
			require.NoError(t, c.Process.Kill())
		}
		err := c.Wait()
		if where == "done" {
			require.NoError(t, err, "%s", out.String())
			break
		}
		require.Error(t, err, where)
		require.Equal(t, syscall.SIGKILL, c.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%s: %s", where, out.String())
		// The table in the store has the rows of the checkpointed steps.
		at, err := fit.LatestSnapshot(t.Context(), filepath.Join(dir, "run"))
		if errors.Is(err, checkpoint.ErrNotFound) {
			continue
		}
		require.NoError(t, err)
		object, err := os.ReadFile(filepath.Join(dir, "store", "table.csv"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(lines(string(object))), 1+int(at.Step), where)
	}
	got, err := os.ReadFile(table)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	object, err := os.ReadFile(filepath.Join(dir, "store", "table.csv"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(object), "in the store")

	rows := contents(t, string(got))
	for pass := range 4 {
		sum, squares := 0.0, 0.0
		for _, row := range rows[pass*passBatches : (pass+1)*passBatches] {
			sum, squares = sum+row["examples"], squares+row["squares"]
			assert.Equal(t, float64(pass+1), row["epoch"])
		}
		n := float64(passBatches * passRows)
		assert.Equal(t, n*(n+1)/2, sum)
		assert.Equal(t, n*(n+1)*(2*n+1)/6, squares)
	}
	assert.Equal(t, names(t, filepath.Join(whole, "best")), names(t, filepath.Join(dir, "best")))
}

// contents returns the numbers of a table, by column.
func contents(t *testing.T, table string) (rows []map[string]float64) {
	t.Helper()
	all := lines(table)
	columns := strings.Split(all[0], ",")
	for _, line := range all[1:] {
		row := map[string]float64{}
		for i, cell := range strings.Split(line, ",") {
			value, err := strconv.ParseFloat(cell, 64)
			if cell == "" {
				continue
			}
			require.NoError(t, err)
			row[columns[i]] = value
		}
		rows = append(rows, row)
	}
	return rows
}

// TestARunGoesOnOnAnotherNumberOfReplicas checks that the batches are the same and that the losses
// are equal up to rounding.
func TestARunGoesOnOnAnotherNumberOfReplicas(t *testing.T) {
	read := func(dir string) []map[string]float64 {
		data, err := os.ReadFile(filepath.Join(dir, "table.csv"))
		require.NoError(t, err)
		return contents(t, string(data))
	}
	whole, dir := t.TempDir(), t.TempDir()
	_, err := killedRun(t, strategytest.New(t, 2, 1), whole)
	require.NoError(t, err)
	want := read(whole)
	done := fmt.Errorf("that is enough")
	for _, part := range []struct {
		replicas, logical int
		until             int64
	}{{1, 1, 3}, {4, 1, 9}, {2, 2, 14}, {8, 1, 99}} {
		_, err := killedRun(t, strategytest.New(t, part.replicas, part.logical), dir, fit.Hook{Name: "stop",
			Record: func(_ context.Context, s *fit.State) error {
				if s.Step() == part.until {
					return done
				}
				return nil
			}})
		if part.until < 99 {
			require.ErrorIs(t, err, done)
		} else {
			require.NoError(t, err)
		}
	}
	got := read(dir)
	require.Len(t, got, len(want))
	for i, row := range got {
		for _, name := range []string{"step", "epoch", "examples", "squares"} {
			assert.Equal(t, want[i][name], row[name])
		}
		assert.InDelta(t, 1, row[fit.Loss]/want[i][fit.Loss], 1e-4, "step %v", row["step"])
		assert.False(t, math.IsNaN(row[fit.Loss]))
	}
}
