package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/examples/digits/job"
	"github.com/tpustrategy/tpustrategy/strategy/interrupt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// TestHostsStopTogetherAndOthersGoOn interrupts one host of a run, and goes on with other numbers of
// hosts. The losses are those of one process that was never interrupted, to all digits.
func TestHostsStopTogetherAndOthersGoOn(t *testing.T) {
	cfg := small(t, 4, 2)
	want, accuracy := alone(t, cfg)
	cfg.Out = filepath.Join(t.TempDir(), "run")
	got := map[int]float64{}
	from := 0
	for _, life := range []struct{ hosts, at int }{{4, 3}, {2, 9}, {8, 15}, {1, 0}} {
		cfg.hosts = life.hosts
		var mu sync.Mutex
		outcomes, err := simulateEach(context.Background(), cfg, quiet, func(host int, opts system.Options) (job.Result, error) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			return runHost(ctx, cfg, opts, eachStep(func(step int, loss float64) {
				mu.Lock()
				defer mu.Unlock()
				if host == 0 {
					got[step] = loss
				}
				if host == life.hosts-1 && step == life.at {
					cancel()
				}
			}))
		})
		require.NoError(t, err)
		done := outcomes[0].result.Steps
		for host, o := range outcomes {
			assert.Equal(t, from, o.result.Resumed, "host %d of %d", host, life.hosts)
			assert.Equal(t, done, o.result.Steps, "host %d of %d", host, life.hosts)
			if life.at == 0 {
				require.NoError(t, o.err)
				assert.Equal(t, accuracy, *o.result.Accuracy)
				continue
			}
			require.ErrorIs(t, o.err, context.Canceled)
			assert.Equal(t, 75, interrupt.Code(o.err))
			assert.True(t, o.result.Interrupted)
		}
		from = done
	}
	require.Len(t, got, len(want))
	for i, loss := range want {
		assert.Equal(t, loss, got[i+1], "step %d", i+1)
	}
}

// TestProcessesSaveAndGoOn: the hosts are processes, which the end of the context terminates.
func TestProcessesSaveAndGoOn(t *testing.T) {
	cfg := small(t, 2, 2)
	cfg.Out, cfg.Steps = filepath.Join(t.TempDir(), "run"), 1000000
	cfg.processes = true
	ctx, cancel := context.WithCancel(context.Background())
	var stderr bytes.Buffer
	go func() {
		defer cancel()
		for saved := 0; saved == 0 && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			names, _ := filepath.Glob(filepath.Join(cfg.Out, "step-*", "*.json"))
			saved = len(names)
		}
	}()
	_, err := asProcesses(ctx, asTest(cfg, "-hosts 2 -out "+cfg.Out), quiet, &bytes.Buffer{}, &stderr)
	var stopped *interrupt.Error
	require.ErrorAs(t, err, &stopped, "%s", &stderr)
	require.True(t, errors.Is(err, context.Canceled))
	require.Positive(t, stopped.Step)

	cfg.Steps = int(stopped.Step) + 3
	result, err := asProcesses(context.Background(), asTest(cfg, "-hosts 2 -out "+cfg.Out), quiet, &bytes.Buffer{}, &stderr)
	require.NoError(t, err, "%s", &stderr)
	assert.Equal(t, int(stopped.Step), result.Resumed)
	assert.Equal(t, cfg.Steps, result.Steps)
}
