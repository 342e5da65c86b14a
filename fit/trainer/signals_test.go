//go:build unix

package trainer_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// programVariable is the environment variable with which this binary is the program of the tests below.
const programVariable = "TRAINER_TEST_PROGRAM"

// program trains a small model. In the phase of -wait it prints "waiting", waits for a signal and prints
// "signaled".
func program(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("program", flag.ContinueOnError)
	f := trainer.AddFlags(flags, trainer.Defaults{Steps: 40, Devices: 2})
	wait := flags.String("wait", "", "phase in which the program waits for a signal: compile, train, evaluate or save")
	after := flags.Duration("after", 0, "time for which the program ignores the signal")
	if err := f.Parse(args, stderr); err != nil {
		return err
	}
	in := func(phase string) {
		if phase == *wait && ctx.Err() == nil {
			fmt.Fprintln(stdout, "waiting")
			<-ctx.Done()
			fmt.Fprintln(stdout, "signalled")
			time.Sleep(*after)
		}
	}
	options := f.StrategyOptions(nil)
	options.Phases = func(p phase.Phase) {
		if p.Stage == phase.Compiling && p.Name == "train_step" {
			in("compile")
		}
	}
	s, done, err := f.Open(ctx, options, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("a"), graph.Tanh(layers.Dense(rc.Scope("b"), in[0],
			true, 8)), true, 1)))
	}
	store := f.NewStore()
	step, err := train.New(s, store, optimizer.Adam().Done(), loss, train.Options{})
	if err != nil {
		return err
	}
	held, err := train.NewEvaluation(s, store, loss, train.Options{})
	if err != nil {
		return err
	}
	x, err := input.NewTensor([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 8, 1)
	if err != nil {
		return err
	}
	data := input.FromSlices(input.Leaf(x))
	test := fit.Batches(func(yield func([]any, error) bool) {
		in("evaluate")
		yield([]any{[][]float32{{1}, {2}}}, nil)
	})
	result, err := fit.Run(ctx, step, fit.Dataset(data.Repeat(-1).Batch(2, true)), f.FitOptions(nil), append(f.Hooks(4),
		fit.Evaluate("test", held, test, 5),
		fit.Each(1, func(_ context.Context, s *fit.State) error {
			if s.Step() == s.ResumedFrom()+2 {
				in("train")
			}
			return nil
		}),
		fit.Hook{Name: "state", Load: func([]byte) error { return nil }, Save: func() ([]byte, error) {
			in("save")
			return []byte("saved"), nil
		}})...)
	fmt.Fprintf(stdout, "steps %d to %d\n", result.ResumedFrom, result.Step)
	return err
}

// life is one run of the program, in a process of its own.
type life struct {
	code           int // -1 if a signal ended the process
	signal         syscall.Signal
	resumed, step  int64
	stdout, stderr string
	untilEnd       time.Duration // from the last signal
}

// run starts the program in dir. Each of the signals is sent when the program waits for it.
func run(t *testing.T, dir, wait, flags string, signals ...syscall.Signal) *life {
	t.Helper()
	l := &life{}
	args := append(strings.Fields(flags), "-wait", wait, "-save-every", "4", "-plugin", plugintest.Path(t, "cpu"))
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), programVariable+"=1", "TMPDIR="+t.TempDir(), "TPUSTRATEGY_GOODPUT="+filepath.Join(dir,
		"goodput"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	sent, last := 0, time.Time{}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		l.stdout += lines.Text() + "\n"
		if line := lines.Text(); sent < len(signals) && (line == "waiting" || line == "signalled") {
			require.NoError(t, cmd.Process.Signal(signals[sent]))
			sent, last = sent+1, time.Now()
		}
		_, _ = fmt.Sscanf(lines.Text(), "steps %d to %d", &l.resumed, &l.step)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		l.signal = status.Signal()
	}
	l.code, l.stderr, l.untilEnd = cmd.ProcessState.ExitCode(), stderr.String(), time.Since(last)
	require.Len(t, signals, sent, "the program does not wait in %q\n%s", wait, l.stderr)
	return l
}

// losses returns the steps and losses of a run's table.
func losses(t *testing.T, dir string) (all [][]string) {
	f, err := os.Open(filepath.Join(dir, "losses.csv"))
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	for _, row := range rows {
		all = append(all, row[:3])
	}
	return all
}

// contents returns the files below a folder.
func contents(t *testing.T, dir string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	}))
	return all
}

// TestASignalInEachPhaseHasItsExitCode interrupts a run in each phase with each signal. The exit
// codes are documented in docs/train-a-language-model.md. Each life continues after the last step
// of the previous life, and the table equals the table of an uninterrupted run.
func TestASignalInEachPhaseHasItsExitCode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	step := int64(0)
	for _, c := range []struct {
		wait   string
		signal syscall.Signal
		code   int
		least  int64 // number of steps of this life
	}{
		{"compile", syscall.SIGINT, 130, 0},
		{"compile", syscall.SIGTERM, interrupt.ExitCode, 0},
		{"train", syscall.SIGINT, interrupt.ExitCode, 2},
		{"train", syscall.SIGTERM, interrupt.ExitCode, 2},
		{"compile", syscall.SIGTERM, interrupt.ExitCode, 0},
		{"evaluate", syscall.SIGINT, interrupt.ExitCode, 1},
		{"evaluate", syscall.SIGTERM, interrupt.ExitCode, 0}, // the evaluation that the last life did not complete
		{"save", syscall.SIGINT, interrupt.ExitCode, 1},
		{"save", syscall.SIGTERM, interrupt.ExitCode, 1},
		{"compile", syscall.SIGINT, interrupt.ExitCode, 0},
	} {
		l := run(t, dir, c.wait, "-out run -resume", c.signal)
		name := fmt.Sprintf("%s in %s after step %d", c.signal, c.wait, step)
		assert.Equal(t, c.code, l.code, "%s: %s", name, l.stderr)
		assert.Less(t, l.untilEnd, 30*time.Second, name)
		assert.Equal(t, step, l.resumed, "%s: %s", name, l.stderr)
		assert.GreaterOrEqual(t, l.step, step+c.least, name)
		step = l.step
	}
	require.Less(t, step, int64(40))

	before := contents(t, dir)
	require.Contains(t, before, filepath.Join(dir, "goodput"))
	l := run(t, dir, "", "-out run -resume -seed 2")
	assert.Equal(t, command.Usage, l.code, l.stderr)
	assert.Equal(t, before, contents(t, dir), "a rejected resume changes no file")

	l = run(t, dir, "", "-out run -resume")
	require.Equal(t, command.OK, l.code, l.stderr)
	assert.Equal(t, []int64{step, 40}, []int64{l.resumed, l.step})
	l = run(t, dir, "", "-out whole")
	require.Equal(t, command.OK, l.code, l.stderr)
	assert.Equal(t, losses(t, filepath.Join(dir, "whole")), losses(t, filepath.Join(dir, "run")))
}

// Without -out the same command does not find the checkpoint.
func TestASignalWithoutAFolderHasTheCodeOfTheSignal(t *testing.T) {
	t.Parallel()
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		l := run(t, t.TempDir(), "train", "", signal)
		assert.Equal(t, code, l.code, l.stderr)
		assert.Contains(t, l.stderr, "checkpoints", "the folder of the checkpoint is named")
	}
}

// A second signal ends the process immediately, and the run resumes from its last complete
// checkpoint.
func TestASecondSignalEndsTheProcess(t *testing.T) {
	t.Parallel()
	for _, second := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		l := run(t, dir, "train", "-out run", syscall.SIGINT)
		require.Equal(t, interrupt.ExitCode, l.code, l.stderr)
		first := l.step
		l = run(t, dir, "save", "-out run -resume -after 1m", syscall.SIGINT, second)
		assert.Equal(t, second, l.signal, "exit code %d\n%s", l.code, l.stderr)
		assert.Less(t, l.untilEnd, 10*time.Second)
		l = run(t, dir, "", "-out run -resume")
		assert.Equal(t, command.OK, l.code, l.stderr)
		assert.Equal(t, []int64{first, 40}, []int64{l.resumed, l.step})
	}
}
