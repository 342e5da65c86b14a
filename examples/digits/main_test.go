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

	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// asCommand makes the test binary the command itself.
const asCommand = "DIGITS_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// lastLine checks that output ends with one line that is a JSON object.
func lastLine(t *testing.T, output string) map[string]any {
	t.Helper()
	require.True(t, strings.HasSuffix(output, "\n"), "%q", output)
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &fields), "%s", output)
	return fields
}

func TestTheLastLineIsJSON(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), []string{"-plugin", plugin, "-steps", "20", "-seed", "5", "-batch", "32"}, &stdout, &stderr)
	require.Equal(t, command.OK, code, "%s", stderr.String())
	fields := lastLine(t, stdout.String())
	assert.Equal(t, 4.0, fields["replicas"])
	assert.Equal(t, 2.0, fields["logical"])
	assert.Equal(t, 20.0, fields["steps"])
	assert.Equal(t, 32.0, fields["batch"])
	assert.Equal(t, 5.0, fields["seed"])
	assert.Equal(t, false, fields["interrupted"])
	for _, name := range []string{"accuracy", "seconds", "examples_per_second"} {
		assert.Positive(t, fields[name], name)
	}
	assert.Contains(t, stdout.String(), "replica=4,logical=2")
	assert.Contains(t, stderr.String(), "step 20 of 20  loss ")
	assert.NotContains(t, stdout.String(), "step 20 of 20", "progress goes to the standard error")
}

func TestBadFlagsGiveOneLineAndCode2(t *testing.T) {
	for _, args := range []string{
		"-replicas 0", "-logical 0", "-replicas 5", "-batch 6", "-batch -1", "-bogus", "-steps x", "-seed -1", "stray",
		"-data does/not/exist", "-data .", "-plugin does/not/exist.so", "-devices 100000",
	} {
		t.Run(args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, command.Usage, run(context.Background(), strings.Fields(args), &stdout, &stderr))
			assert.Empty(t, stdout.String())
			assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), "%s", stderr.String())
			assert.True(t, strings.HasPrefix(stderr.String(), "digits: "), "%s", stderr.String())
		})
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, command.OK, run(context.Background(), []string{"-help"}, &stdout, &stderr))
	for _, name := range []string{"replicas", "logical", "devices", "steps", "batch", "seed", "plugin", "data", "out", "save-every"} {
		assert.Contains(t, stderr.String(), "  -"+name+" ")
	}
}

// TestCtrlCEndsTheRunCleanly interrupts a real process in the middle of training.
func TestCtrlCEndsTheRunCleanly(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-plugin", plugin, "-steps", "100000000")
	cmd.Env = append(os.Environ(), asCommand+"=1", "TF_CPP_MIN_LOG_LEVEL=2")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	pipe, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	lines := bufio.NewScanner(pipe)
	require.True(t, lines.Scan())
	for strings.Contains(lines.Text(), "compiling") { // a slow machine says that it compiles
		require.True(t, lines.Scan())
	}
	require.Contains(t, lines.Text(), "step 1 of 100000000")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	interrupted := time.Now()
	var rest []string
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	err = cmd.Wait()
	require.NoError(t, ctx.Err(), "the process hung")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 130, exit.ExitCode(), "%v", rest)
	assert.Less(t, time.Since(interrupted), 20*time.Second)
	assert.NotContains(t, strings.Join(rest, "\n"), "goroutine")

	fields := lastLine(t, stdout.String())
	assert.Equal(t, true, fields["interrupted"])
	assert.Nil(t, fields["accuracy"])
	assert.Positive(t, fields["steps"])
	assert.Positive(t, fields["loss"])
	assert.Contains(t, stdout.String(), "Interrupted after ")
}

// TestSIGTERMSavesAndTheRunGoesOn interrupts a real process twice. It ends with the code that asks
// for a restart, and each restart goes on, the last one on other devices.
func TestSIGTERMSavesAndTheRunGoesOn(t *testing.T) {
	plugin, dir := plugintest.Path(t, "cpu"), filepath.Join(t.TempDir(), "run")
	from := 0.0
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-plugin", plugin, "-steps", "100000000", "-out", dir, "-save-every", "1000000", "-replicas", "2", "-devices", "4")
		cmd.Env = append(os.Environ(), asCommand+"=1", "TF_CPP_MIN_LOG_LEVEL=2")
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		pipe, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(pipe)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "step ") {
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		said := ""
		for lines.Scan() {
			said = lines.Text()
		}
		require.Error(t, cmd.Wait())
		require.Equal(t, 75, cmd.ProcessState.ExitCode(), "%s", &stdout)
		assert.Regexp(t, `^digits: interrupt: stopped after step \d+: SIGTERM; (start the process again|its checkpoint is in .*, resume) to go on$`, said)
		fields := lastLine(t, stdout.String())
		assert.Equal(t, true, fields["interrupted"])
		if from > 0 {
			assert.Equal(t, from, fields["resumed"])
		}
		assert.Greater(t, fields["steps"], from)
		from = fields["steps"].(float64)
	}
	var stdout, stderr bytes.Buffer
	args := []string{"-plugin", plugin, "-out", dir, "-steps", fmt.Sprint(int(from) + 5), "-replicas", "2", "-logical", "1", "-devices", "2"}
	require.Equal(t, command.OK, run(context.Background(), args, &stdout, &stderr), "%s", &stderr)
	fields := lastLine(t, stdout.String())
	assert.Equal(t, from, fields["resumed"])
	assert.Equal(t, from+5, fields["steps"])
	assert.Positive(t, fields["accuracy"])

	require.Equal(t, command.Usage, run(context.Background(), append(args, "-seed", "2"), &stdout, &stderr))
	assert.Contains(t, stderr.String(), "has a run of other settings")
}
