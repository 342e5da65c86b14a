package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func init() { plugintest.PlainCode() }

// small is a short run on the given number of hosts.
func small(t testing.TB, hosts, logical int, more ...string) config {
	return with(t, fmt.Sprintf("-hosts %d -logical %d -wait 1m -steps 25 -seed 3 -plugin %s %s", hosts, logical,
		plugintest.Path(t, "cpu"), strings.Join(more, " ")))
}

func with(t testing.TB, args string) config {
	cfg, err := parse(strings.Fields(args), io.Discard)
	require.NoError(t, err)
	return cfg
}

// eachStep is a hook that reports each step and its loss.
func eachStep(tell func(step int, loss float64)) []fit.Hook {
	return []fit.Hook{fit.Each(1, func(_ context.Context, s *fit.State) error {
		loss, _ := s.Value(fit.Loss)
		tell(int(s.Step()), loss)
		return nil
	})}
}

// alone trains on the same devices in one process and returns the losses and the outcome.
func alone(t testing.TB, cfg config) (losses []float64, outcome trainer.ClassifierResult) {
	t.Helper()
	own, err := cfg.hostConfig(io.Discard)
	require.NoError(t, err)
	own.Out = t.TempDir()
	own.hooks = eachStep(func(_ int, loss float64) { losses = append(losses, loss) })
	outcome, err = runHost(t.Context(), own, system.Options{CPUDevices: cfg.Devices, Plugin: cfg.Plugin})
	require.NoError(t, err)
	return losses, outcome
}

func TestAnInterruptIsOneLine(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var stdout, stderr, said bytes.Buffer
	err := run(ctx, []string{"-plugin", plugin, "-steps", "1000000", "-logical", "2"}, &stdout, writer(func(p []byte) {
		if stderr.Write(p); bytes.Contains(p, []byte("step 1 ")) {
			cancel()
		}
	}))
	require.Equal(t, 130, trainer.ExitCode(ctx, "multihost", err, &said))
	assert.Equal(t, 1, strings.Count(said.String(), "\n"), "%s", &said)
	result := last(t, stdout.String())
	assert.True(t, result.Interrupted)
	assert.Equal(t, 4, result.Replicas)
	assert.Nil(t, result.Accuracy)
}

// last is the outcome in the last line.
func last(t *testing.T, said string) (result trainer.ClassifierResult) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(said), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &result), "%s", said)
	return result
}

func TestAnInterruptBeforeTheDevicesAreOpenHasItsJSONToo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&command.Signal{Signal: syscall.SIGTERM})
	var stdout, stderr bytes.Buffer
	err := run(ctx, []string{"-plugin", plugintest.Path(t, "cpu"), "-seed", "7"}, &stdout, &stderr)
	require.Equal(t, 75, trainer.ExitCode(ctx, "multihost", err, &stderr))
	assert.Regexp(t, "^multihost: .*terminated\n$", stderr.String())
	result := last(t, stdout.String())
	assert.True(t, result.Interrupted)
	assert.Equal(t, 8, result.Devices)
	assert.Equal(t, int64(7), result.Seed)
}

// writer calls a function for each write.
type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestTheCommand(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	for name, c := range map[string]struct {
		args   []string
		code   int
		stdout []string
		stderr []string
	}{
		"trains": {args: []string{"-steps", "20", "-logical", "2", "-v"}, stdout: []string{"Host 0: Held-out accuracy",
			"Host 3: Held-out accuracy", "after 20 steps"},
			stderr: []string{"replica=4,logical=2", `msg="system: check devices" host=3`}},
		"missing host": {args: []string{"-missing", "1", "-wait", "200ms"}, code: 69,
			stderr: []string{"host 0: system: create client", "host-1:8476"}},
		"uneven":     {args: []string{"-hosts", "3"}, code: 2, stderr: []string{"-hosts: 3 hosts cannot share 8 devices"}},
		"no logical": {args: []string{"-logical", "0"}, code: 2, stderr: []string{"-logical"}},
		"too many": {args: []string{"-replicas", "9", "-steps", "1"}, code: 2,
			stderr: []string{"9 replicas of 1 logical devices do not fit"}},
		"an idle host": {args: []string{"-logical", "3"}, code: 2,
			stderr: []string{"-replicas: 2 replicas of 3 logical devices use 6 of the 8 devices"}},
		"no data": {args: []string{"-data", "."}, code: 1,
			stderr: []string{"the folder needs train-images-idx3-ubyte, plain or with .gz"}},
		"no plugin":    {args: []string{"-plugin", "."}, code: 1, stderr: []string{"not a regular file"}},
		"no such host": {args: []string{"-missing", "4"}, code: 2, stderr: []string{"-missing: 4; give a host from 0 to 3"}},
		"no wait":      {args: []string{"-wait", "0s"}, code: 2, stderr: []string{"-wait: 0s"}},
		"no such flag": {args: []string{"-host", "3"}, code: 2, stderr: []string{"-host"}},
		"argument":     {args: []string{"train"}, code: 2, stderr: []string{`"train" is no flag`}},
		"help":         {args: []string{"-help"}, stderr: []string{"-slice"}},
		"no TPU at all": {args: []string{"-slice", "-wait", "20s", "-plugin", "/no/such/libtpu.so"}, code: 1,
			stderr: []string{"multihost: "}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "no TPU at all" {
				t.Setenv("TPU_SKIP_MDS_QUERY", "1")
				t.Setenv("TPU_WORKER_HOSTNAMES", "localhost")
				t.Setenv("TPU_WORKER_ID", "0")
			} else {
				c.args = append([]string{"-plugin", plugin}, c.args...)
			}
			var stdout, stderr bytes.Buffer
			var mu sync.Mutex // hosts write at the same time
			err := run(t.Context(), c.args, &stdout, writer(func(p []byte) {
				mu.Lock()
				defer mu.Unlock()
				stderr.Write(p)
			}))
			require.Equal(t, c.code, trainer.ExitCode(t.Context(), "multihost", err, &stderr), "%s%s", &stdout, &stderr)
			for _, want := range c.stdout {
				assert.Contains(t, stdout.String(), want)
			}
			for _, want := range c.stderr {
				assert.Contains(t, stderr.String(), want)
			}
			if c.code == 2 {
				assert.Equal(t, 2, strings.Count(stderr.String(), "\n"), "what is wrong, and the usage: %s", &stderr)
			}
			if len(c.stdout) > 0 {
				assert.Equal(t, int64(20), last(t, stdout.String()).Steps)
				assert.Equal(t, 1, strings.Count(stderr.String(), "of 8 cpu devices"), "one host shows the tables")
			}
		})
	}
}
