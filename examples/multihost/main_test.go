package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/examples/digits/job"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func small(t testing.TB, hosts, logical int) config {
	return config{hosts: hosts, missing: -1, wait: time.Minute, Config: job.Config{
		Devices: 8, Logical: logical, Steps: 25, Seed: 3, LossEvery: 1, Plugin: plugintest.Path(t, "cpu"),
	}}
}

// eachStep are hooks that tell of each step and its loss.
func eachStep(tell func(step int, loss float64)) job.Hooks {
	return job.Hooks{Fit: []fit.Hook{fit.Each(1, func(_ context.Context, s *fit.State) error {
		loss, _ := s.Value(fit.Loss)
		tell(int(s.Step()), loss)
		return nil
	})}}
}

// alone trains on the same devices in one process and returns the losses and the accuracy.
func alone(t testing.TB, cfg config) ([]float64, float64) {
	t.Helper()
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: cfg.Devices, Plugin: cfg.Plugin})
	require.NoError(t, err)
	defer sys.Close()
	data, err := job.Load(cfg.Config)
	require.NoError(t, err)
	cfg.Replicas = cfg.Devices / cfg.Logical
	var losses []float64
	result, err := job.Train(context.Background(), sys, cfg.Config, data, eachStep(func(_ int, loss float64) { losses = append(losses, loss) }))
	require.NoError(t, err)
	return losses, *result.Accuracy
}

func TestAnInterruptIsOneLine(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var stderr bytes.Buffer
	// The first line of the tables comes when the devices are open.
	var last []byte
	stdout := writer(func(p []byte) { cancel(); last = bytes.Clone(p) })
	require.Equal(t, 130, run(ctx, []string{"-plugin", plugin, "-steps", "1000000"}, stdout, &stderr))
	assert.Equal(t, "multihost: interrupted\n", stderr.String())
	var result job.Result
	require.NoError(t, json.Unmarshal(last, &result), "%s", last)
	assert.True(t, result.Interrupted)
	assert.Equal(t, 4, result.Replicas)
	assert.Nil(t, result.Accuracy)
}

func TestAnInterruptBeforeTheDevicesAreOpenHasItsJSONToo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&command.Signal{Signal: syscall.SIGTERM})
	var stdout, stderr bytes.Buffer
	require.Equal(t, 75, run(ctx, []string{"-plugin", plugintest.Path(t, "cpu"), "-seed", "7"}, &stdout, &stderr))
	assert.Regexp(t, "^multihost: .*terminated\n$", stderr.String())
	var result job.Result
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &result), "%s", &stdout)
	assert.True(t, result.Interrupted)
	assert.Equal(t, 8, result.Devices)
	assert.Equal(t, uint64(7), result.Seed)
}

// writer tells of each write.
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
		"trains": {args: []string{"-steps", "20", "-v"}, stdout: []string{"replica=4,logical=2", "Host 0: held-out accuracy", "Host 3: held-out accuracy", "after 20 steps"},
			stderr: []string{`msg="system: check devices" host=3`}},
		"missing host":  {args: []string{"-missing", "1", "-wait", "200ms"}, code: 69, stderr: []string{"host 0: system: create client", "host-1:8476"}},
		"uneven":        {args: []string{"-hosts", "3"}, code: 2, stderr: []string{"-hosts: 3 hosts cannot share 8 devices"}},
		"no logical":    {args: []string{"-logical", "0"}, code: 2, stderr: []string{"-logical"}},
		"too many":      {args: []string{"-replicas", "9", "-steps", "1"}, code: 2, stderr: []string{"-replicas"}},
		"an idle host":  {args: []string{"-logical", "3"}, code: 2, stderr: []string{"-replicas: 2 replicas of 3 logical devices take 6 of the 8 devices"}},
		"no data":       {args: []string{"-data", "."}, code: 2, stderr: []string{"-data: . has neither train-images-idx3-ubyte nor"}},
		"no plugin":     {args: []string{"-plugin", "."}, code: 2, stderr: []string{"-plugin: no cpu plugin found: .: not a regular file"}},
		"no such host":  {args: []string{"-missing", "4"}, code: 2, stderr: []string{"-missing: 4; the hosts are 0 to 3"}},
		"no wait":       {args: []string{"-wait", "0s"}, code: 2, stderr: []string{"-wait: 0s"}},
		"no such flag":  {args: []string{"-host", "3"}, code: 2, stderr: []string{"-host"}},
		"argument":      {args: []string{"train"}, code: 2, stderr: []string{`unexpected argument "train"`}},
		"help":          {args: []string{"-help"}, stderr: []string{"-slice"}},
		"no TPU at all": {args: []string{"-slice", "-wait", "20s", "-plugin", "/no/such/libtpu.so"}, code: 1, stderr: []string{"multihost: system: "}},
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
			require.Equal(t, c.code, run(context.Background(), c.args, &stdout, &stderr), "%s%s", &stdout, &stderr)
			for _, want := range c.stdout {
				assert.Contains(t, stdout.String(), want)
			}
			for _, want := range c.stderr {
				assert.Contains(t, stderr.String(), want)
			}
			if c.code == 2 {
				assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), "%s", &stderr)
			}
			if len(c.stdout) > 0 {
				lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
				var result job.Result
				require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &result))
				assert.Equal(t, 20, result.Steps)
				assert.Equal(t, 1, strings.Count(stdout.String(), "mesh    replica="), "one host shows the tables")
			}
		})
	}
}
