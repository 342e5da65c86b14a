package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// asCommand is the environment variable with which the test binary runs the command instead of the
// tests.
const asCommand = "GPT_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	plugintest.PlainCode()
	if os.Getenv(asCommand) == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// long skips a test that takes minutes.
func long(t *testing.T) string {
	t.Helper()
	if os.Getenv("TPUSTRATEGY_GPT") != "1" {
		t.Skip("takes minutes; make test-gpt runs it")
	}
	return plugintest.Path(t, "cpu")
}

// command starts the command with the flags of a short run, and others.
func command(t *testing.T, out string, flags ...string) (cmd *exec.Cmd, said *bufio.Scanner, stdout *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, os.Args[0], append([]string{"-plugin", plugintest.Path(t, "cpu"), "-vocab", "512",
		"-out", out,
		"-replicas", "4", "-logical", "2", "-steps", "9", "-batch", "8"}, flags...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "TF_CPP_MIN_LOG_LEVEL=3")
	stdout = &bytes.Buffer{}
	cmd.Stdout = stdout
	pipe, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(pipe), stdout
}

// finished waits for a command and returns its exit code and its output.
func finished(t *testing.T, cmd *exec.Cmd, said *bufio.Scanner) (int, string) {
	t.Helper()
	var lines []string
	for said.Scan() {
		lines = append(lines, said.Text())
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), strings.Join(lines, "\n")
}

// column returns a column of a run's CSV by step.
func column(t *testing.T, out, name string) map[string]string {
	t.Helper()
	file, err := os.Open(filepath.Join(out, "losses.csv"))
	require.NoError(t, err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	at, values := -1, map[string]string{}
	for i, title := range rows[0] {
		if title == name {
			at = i
		}
	}
	require.GreaterOrEqual(t, at, 0, "%v", rows[0])
	for _, row := range rows[1:] {
		if row[at] != "" {
			values[row[0]] = row[at]
		}
	}
	return values
}

// data are the texts of these tests.
func data(t *testing.T) string {
	t.Helper()
	var all []byte
	for _, name := range []string{"model_test.go", "presets_test.go", "model.go", "presets.go"} {
		more, err := os.ReadFile(filepath.Join("decoder", name))
		require.NoError(t, err)
		all = append(all, more...)
	}
	path := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(path, bytes.Repeat(all, 2), 0o600))
	return path
}

// TestARunThatIsKilledGoesOnToAllDigits kills one process after a checkpoint and interrupts
// another. The resumed runs have exactly the same losses.
func TestARunThatIsKilledGoesOnToAllDigits(t *testing.T) {
	long(t)
	text, whole := data(t), t.TempDir()
	cmd, said, _ := command(t, whole, "-data", text)
	code, lines := finished(t, cmd, said)
	require.Zero(t, code, lines)
	want := column(t, whole, "loss")
	require.Contains(t, want, "9")
	for name, end := range map[string]struct {
		signal os.Signal
		code   int
	}{"killed": {os.Kill, -1}, "interrupted": {os.Interrupt, 75}} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			cmd, said, stdout := command(t, out, "-data", text)
			go func() { // as soon as there is a checkpoint
				for t.Context().Err() == nil {
					if found, _ := filepath.Glob(filepath.Join(out, "checkpoints", "step-*")); len(found) > 0 {
						_ = cmd.Process.Signal(end.signal)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
			code, lines := finished(t, cmd, said)
			require.Equal(t, end.code, code, "%s %s", stdout, lines)
			cmd, said, _ = command(t, out, "-data", text, "-resume")
			code, lines = finished(t, cmd, said)
			require.Zero(t, code, lines)
			got := column(t, out, "loss")
			for step, loss := range want {
				if have, ok := got[step]; ok {
					assert.Equal(t, loss, have, "step %s", step)
				}
			}
			assert.Equal(t, want["9"], got["9"])
		})
	}
}

// TestOptionsGiveTheLossesOfThePlainRun compares the losses of runs with each option.
func TestOptionsGiveTheLossesOfThePlainRun(t *testing.T) {
	long(t)
	text := data(t)
	losses := func(flags ...string) map[string]string {
		out := t.TempDir()
		cmd, said, _ := command(t, out, append([]string{"-data", text}, flags...)...)
		code, lines := finished(t, cmd, said)
		require.Zero(t, code, "%v: %s", flags, lines)
		return column(t, out, "loss")
	}
	plain := losses()
	for _, option := range []struct {
		flags  string
		within float64
	}{
		{"-shard-state optimizer", 2e-4}, {"-shard-state gradients", 2e-4}, {"-shard-state parameters", 2e-4},
		{"-remat products", 2e-4}, {"-remat full", 2e-4}, {"-accumulate 2", 2e-4}, {"-precision f32", 2e-4},
		{"-precision bf16", 3e-2},
		{"-replicas 8 -logical 1", 2e-4},
		{"-replicas 2 -logical 4 -shard-state parameters -remat full -accumulate 2 -precision bf16", 3e-2},
	} {
		got := losses(strings.Fields(option.flags)...)
		for step, loss := range plain {
			a, err := strconv.ParseFloat(loss, 64)
			require.NoError(t, err)
			b, err := strconv.ParseFloat(got[step], 64)
			require.NoError(t, err, "%s: step %s", option.flags, step)
			assert.InDelta(t, a, b, option.within, "%s: step %s", option.flags, step)
		}
	}
}

// TestCtrlCEndsEachPhase interrupts a process in each of its phases.
func TestCtrlCEndsEachPhase(t *testing.T) {
	long(t)
	text := data(t)
	for _, after := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second,
		5 * time.Second} {
		cmd, said, stdout := command(t, t.TempDir(), "-data", text, "-steps", "100000")
		time.AfterFunc(after, func() { _ = cmd.Process.Signal(os.Interrupt) })
		code, lines := finished(t, cmd, said)
		if strings.Contains(lines, "its checkpoint is in") { // on a fast machine it trains by then
			assert.Equal(t, 75, code, "after %v: %s %s", after, stdout, lines)
		} else {
			assert.Contains(t, []int{130, -1}, code, "after %v: %s %s", after, stdout, lines) // -1: before main takes signals
		}
		assert.NotContains(t, lines, "goroutine")
	}
}
