package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// asCommand makes the test binary the command itself.
const asCommand = "BENCH_TEST_AS_COMMAND"

// TestMain runs the command if a benchmark or a test started this binary as a child process.
func TestMain(m *testing.M) {
	plugintest.PlainCode()
	if len(os.Args) > 1 && os.Args[1] == "-child" || os.Getenv(asCommand) == "1" {
		main()
		return
	}
	os.Exit(plugintest.OwnHome(m.Run))
}

// TestEveryBenchmarkRuns runs every benchmark for a short time.
func TestEveryBenchmarkRuns(t *testing.T) {
	plugintest.Path(t, "cpu")
	effort, compiler = 0.01, plugintest.Programs(t)
	defer func() { effort, compiler = 1, nil }()
	for _, b := range benches {
		t.Run(fmt.Sprintf("%s on %d", b.name, b.devices), func(t *testing.T) {
			r, err := b.measure(t.Context())
			require.NoError(t, err)
			assert.Positive(t, r.Us)
		})
	}
}

func TestWordsChooseBenchmarks(t *testing.T) {
	all, err := choose(nil)
	require.NoError(t, err)
	assert.Len(t, all, len(benches))
	some, err := choose([]string{"h2d", "add"})
	require.NoError(t, err)
	var got []string
	for _, b := range some {
		got = append(got, b.name)
	}
	assert.Equal(t, []string{"add_one", "add_one", "add_one", "h2d"}, got)
	_, err = choose([]string{"add", "nothing"})
	assert.ErrorContains(t, err, `no benchmark is called "nothing"; there are add_one, launch_variables_500, `)
}

func TestWrongUsageIsExitCode2(t *testing.T) {
	for _, line := range []string{"nothing", "-bogus"} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, command.Usage, run(t.Context(), strings.Fields(line), &stdout, &stderr), line)
		assert.Empty(t, stdout.String())
		assert.NotEmpty(t, stderr.String())
	}
	var stdout, stderr bytes.Buffer
	assert.Equal(t, command.OK, run(t.Context(), []string{"-help"}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "usage: bench [word ...]")
}

// TestCtrlCEndsTheBenchmarkUnderWay interrupts a real process after its first line.
func TestCtrlCEndsTheBenchmarkUnderWay(t *testing.T) {
	plugintest.Path(t, "cpu")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "add_one", "mlp_step")
	cmd.Env = append(os.Environ(), asCommand+"=1", "TF_CPP_MIN_LOG_LEVEL=2")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	out := json.NewDecoder(pipe)
	var first row
	require.NoError(t, out.Decode(&first))
	assert.Equal(t, "add_one", first.Name)

	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	interrupted := time.Now()
	for err = nil; err == nil; { // whole lines only
		err = out.Decode(&row{})
	}
	assert.Equal(t, io.EOF, err)
	err = cmd.Wait()
	require.NoError(t, ctx.Err(), "the process hung")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 130, exit.ExitCode(), stderr.String())
	assert.Equal(t, "bench: interrupted\n", stderr.String())
	assert.Less(t, time.Since(interrupted), 10*time.Second)
}
