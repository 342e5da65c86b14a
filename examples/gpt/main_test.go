package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	process "github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// texts writes some Go to train on.
func texts(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text.go")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("func add(a, b int) int {\n\treturn a + b\n}\n\n", 400)),
		0o600))
	return path
}

func TestATinyModelTrainsAndWrites(t *testing.T) {
	plugin, out := plugintest.Path(t, "cpu"), t.TempDir()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{"-plugin", plugin, "-data", texts(t), "-vocab", "270", "-out", out, "-replicas", "2",
		"-logical", "2", "-devices", "4",
		"-steps", "6", "-batch", "4", "-generate", "func"}, &stdout, &stderr)
	require.NoError(t, err, "%s", stderr.String())
	lines := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
	assert.True(t, strings.HasPrefix(lines[0], "func"), lines[0])
	assert.Contains(t, stdout.String(), "by gzip -9 1.")
	var last map[string]float64
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last), "%s", stdout.String())
	assert.Equal(t, 6.0, last["steps"])
	for _, name := range []string{"bits_per_byte", "loss", "tokens_per_second", "parameters", "seconds"} {
		assert.Positive(t, last[name], name)
	}
	assert.Len(t, last, 6)
	for _, name := range []string{"losses.csv", "curve.html", "events", "checkpoints"} {
		_, err := os.Stat(filepath.Join(out, name))
		assert.NoError(t, err)
	}

	// A checkpoint of another preset, and a second run in the same folder.
	for line, want := range map[string]string{"-resume -preset 125m": "preset", "-resume -batch 8": "batch",
		"": "resume"} {
		args := append([]string{"-plugin", plugin, "-data", texts(t), "-vocab", "270", "-out", out, "-replicas", "2",
			"-logical", "2", "-devices", "4", "-steps", "6", "-batch", "4"},
			strings.Fields(line)...)
		err := run(t.Context(), args, &stdout, &stderr)
		assert.ErrorContains(t, err, want, line)
	}
}

func TestWhatCannotBeTrainedIsSaidFirst(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	short := filepath.Join(t.TempDir(), "short")
	require.NoError(t, os.WriteFile(short, []byte(strings.Repeat("some text\n", 3)), 0o600))
	for line, want := range map[string]string{
		"-preset gpt5":                       "there are tiny, 125m, 1b3, llama3-8b",
		"-replicas 4 -batch 6":               "6 rows of a batch cannot be divided into 4 equal parts",
		"-replicas 4 -batch 8 -accumulate 4": "8 rows of a batch cannot be divided into 16 equal parts",
		"-logical 8":                         "4 heads cannot be divided into 8 equal parts",
		"-preset llama3-8b -logical 3":       "32 heads cannot be divided into 3 equal parts",
		"-vocab 301 -logical 2":              "301 tokens of the vocabulary cannot be divided into 2 equal parts",
		"-vocab 10":                          "10",
		"-vocab 256 -data " + short:          "does not make two parts",
		"-replicas 8 -logical 8":             "do not fit on 8 devices",
		"-data does/not/exist":               "does/not/exist",
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"-plugin", plugin, "-data", texts(t)}, strings.Fields(line)...)
		err := run(context.Background(), args, &stdout, &stderr)
		assert.ErrorContains(t, err, want, line)
		assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err), "%s: %v", line, err)
		assert.NotContains(t, stderr.String(), "step 1", line)
	}
}

// TestATerminatedRunIsStartedAgain terminates a run. It saves and exits with the code that requests
// a restart. A restarted run with the same number of steps has nothing left to do.
func TestATerminatedRunIsStartedAgain(t *testing.T) {
	plugin, out, data := plugintest.Path(t, "cpu"), t.TempDir(), texts(t)
	line := "-plugin %s -data %s -out %s -vocab 270 -devices 2 -batch 2 -resume -replicas %d -steps %d"
	ctx, cancel := context.WithCancelCause(t.Context())
	var stdout, said bytes.Buffer
	err := run(ctx, strings.Fields(fmt.Sprintf(line, plugin, data, out, 2, 1000)), &stdout, writer(func(p []byte) {
		if bytes.Contains(p, []byte("step 1 ")) {
			cancel(&process.Signal{Signal: syscall.SIGTERM, At: time.Now()})
		}
	}))
	var stopped *interrupt.Error
	require.ErrorAs(t, err, &stopped)
	require.Equal(t, 75, trainer.ExitCode(ctx, "gpt", err, &said))
	assert.Contains(t, said.String(), "gpt: interrupt: stopped after step ")
	assert.Contains(t, said.String(), "resume to continue")
	stdout.Reset()
	require.NoError(t, run(t.Context(), strings.Fields(fmt.Sprintf(line, plugin, data, out, 1, stopped.Step)), &stdout,
		&said), "%s", &said)
	assert.Contains(t, stdout.String(), fmt.Sprintf(`"steps":%d`, stopped.Step))
}

// writer calls a function for each write.
type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
