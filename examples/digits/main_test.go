package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// asCommand is the environment variable with which the test binary runs the command instead of the
// tests.
const asCommand = "DIGITS_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// outcome parses the last line of the command's output.
func outcome(t *testing.T, said string) (c trainer.ClassifierResult) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &c), "%s", said)
	return c
}

func TestDigitsAreLearnt(t *testing.T) {
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{"-plugin", plugintest.Path(t, "cpu"), "-replicas", "4", "-logical", "2", "-steps",
		"264", "-out", t.TempDir()}, &stdout, &stderr)
	require.NoError(t, err, "%s", &stderr)
	c := outcome(t, stdout.String())
	require.NotNil(t, c.Accuracy)
	assert.GreaterOrEqual(t, *c.Accuracy, 0.95)
	assert.Equal(t, []int{4, 2, 8, 64}, []int{c.Replicas, c.Logical, c.Devices, c.Batch})
	for _, figure := range []float64{*c.Loss, *c.TestLoss, c.Seconds, c.TrainSeconds, c.ExamplesPerSecond,
		float64(c.Steps)} {
		assert.Positive(t, figure)
	}
	assert.Contains(t, stdout.String(), "Held-out accuracy ")
	for _, shown := range []string{"step 1 of 264", "replica=4,logical=2 of 8 cpu devices",
		"1440 of (uint8[8 8], int32[]) to train on, 357 to test with",
		"/hidden/dense/weights  (Float32)[64, 256]  -,logical                 65536   32768"} {
		assert.Contains(t, stderr.String(), shown)
	}
}

func TestLossesAreTheSameOnEachMesh(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	var want trainer.ClassifierResult
	for i, mesh := range []string{"-replicas 1", "-replicas 4 -logical 2", "-replicas 1 -logical 8"} {
		var stdout, stderr bytes.Buffer
		require.NoError(t, run(t.Context(), append(strings.Fields(mesh), "-plugin", plugin, "-steps", "30", "-seed", "7",
			"-out", t.TempDir()), &stdout, &stderr), "%s", &stderr)
		got := outcome(t, stdout.String())
		if i == 0 {
			want = got
			continue
		}
		assert.InEpsilon(t, *want.Loss, *got.Loss, 1e-3, mesh)
		assert.InEpsilon(t, *want.TestLoss, *got.TestLoss, 1e-3, mesh)
	}
}

// started starts the command as a process, and returns when it has taken a step.
func started(t *testing.T, ctx context.Context, args ...string) (cmd *exec.Cmd, stdout *bytes.Buffer,
	rest func() []string) {
	cmd = exec.CommandContext(ctx, os.Args[0], append(args, "-plugin", plugintest.Path(t, "cpu"), "-steps", "100000000",
		"-replicas", "2", "-devices", "4")...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "TF_CPP_MIN_LOG_LEVEL=2")
	stdout = &bytes.Buffer{}
	cmd.Stdout = stdout
	pipe, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(pipe)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "step ") {
	}
	return cmd, stdout, func() (said []string) {
		for lines.Scan() {
			said = append(said, lines.Text())
		}
		return said
	}
}

// TestSIGTERMSavesAndTheRunGoesOn sends a signal to a real process. The process exits with the code
// that requests a restart, and the run resumes on other devices.
func TestSIGTERMSavesAndTheRunGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	from := int64(0)
	for _, signal := range []os.Signal{syscall.SIGTERM} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd, stdout, rest := started(t, ctx, "-out", dir, "-resume", "-save-every", "1000000")
		require.NoError(t, cmd.Process.Signal(signal))
		said := rest()
		require.Error(t, cmd.Wait())
		require.Equal(t, 75, cmd.ProcessState.ExitCode(), "%s %s", stdout, said)
		assert.Contains(t, said[len(said)-1], "resume to continue")
		assert.NotContains(t, strings.Join(said, "\n"), "goroutine")
		c := outcome(t, stdout.String())
		assert.True(t, c.Interrupted)
		assert.Equal(t, from, c.Resumed)
		assert.Greater(t, c.Steps, from)
		from = c.Steps
	}
	var stdout, stderr bytes.Buffer
	args := []string{"-plugin", plugintest.Path(t, "cpu"), "-out", dir, "-steps", fmt.Sprint(from + 5), "-resume",
		"-devices", "2"}
	require.NoError(t, run(t.Context(), args, &stdout, &stderr), "%s", &stderr)
	c := outcome(t, stdout.String())
	assert.Equal(t, []int64{from, from + 5}, []int64{c.Resumed, c.Steps})
	assert.False(t, c.Interrupted)
	assert.ErrorContains(t, run(t.Context(), append(args, "-seed", "2"), &stdout, &stderr),
		`setting "initializer_seed" was 1`)
	assert.ErrorContains(t, run(t.Context(), args[:6], &stdout, &stderr), "add -resume to continue")
}

// TestCtrlCEndsARunWithoutAFolder expects the exit code of a shell, because the same command would
// start from the beginning.
func TestCtrlCEndsARunWithoutAFolder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd, stdout, rest := started(t, ctx)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	said := rest()
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s", said)
	c := outcome(t, stdout.String())
	assert.True(t, c.Interrupted)
	assert.Nil(t, c.Accuracy)
	assert.Positive(t, *c.Loss)
	assert.Contains(t, said[len(said)-1], c.Out)
}
