package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// TestHostsStopTogetherAndOthersGoOn interrupts one host of a run and resumes with other numbers of
// hosts. The losses equal those of an uninterrupted process, up to rounding.
func TestHostsStopTogetherAndOthersGoOn(t *testing.T) {
	want, one := alone(t, small(t, 4, 2))
	out := filepath.Join(t.TempDir(), "run")
	got := map[int]float64{}
	from := int64(0)
	for _, life := range []struct{ hosts, at int }{{4, 3}, {2, 9}, {8, 15}, {1, 0}} {
		cfg := small(t, life.hosts, 2, "-out", out)
		var mu sync.Mutex
		outcomes, err := simulateEach(t.Context(), cfg, func(host int, opts system.Options) (trainer.ClassifierResult,
			error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			own, err := cfg.hostConfig(io.Discard)
			require.NoError(t, err)
			own.hooks = eachStep(func(step int, loss float64) {
				mu.Lock()
				defer mu.Unlock()
				if host == 0 {
					got[step] = loss
				}
				if host == life.hosts-1 && step == life.at {
					cancel()
				}
			})
			return runHost(ctx, own, opts)
		})
		require.NoError(t, err)
		done := outcomes[0].Steps
		for host, o := range outcomes {
			assert.Equal(t, from, o.Resumed, "host %d of %d", host, life.hosts)
			assert.Equal(t, done, o.Steps, "host %d of %d", host, life.hosts)
			if life.at == 0 {
				require.NoError(t, o.err)
				assert.InDelta(t, *one.TestLoss, *o.TestLoss, 1e-4)
				continue
			}
			require.ErrorIs(t, o.err, context.Canceled)
			assert.Equal(t, 75, interrupt.ExitCodeFor(o.err))
			assert.True(t, o.Interrupted)
		}
		from = done
	}
	require.Len(t, got, len(want))
	for i, loss := range want {
		assert.InDelta(t, loss, got[i+1], 1e-4, "step %d", i+1)
	}
}

// TestHostsSaveOnThemselves saves local checkpoints (-near), each host in its own folder.
func TestHostsSaveOnThemselves(t *testing.T) {
	dir, died := t.TempDir(), errors.New("died")
	shared := false
	life := func(at int) []outcome {
		cfg := small(t, 4, 2, "-out", filepath.Join(dir, "run"), "-save-every", "100", "-near", "3:"+filepath.Join(dir,
			"near"), "-steps", "12")
		outcomes, err := simulateEach(t.Context(), cfg, func(host int, opts system.Options) (trainer.ClassifierResult,
			error) {
			own, err := cfg.hostConfig(io.Discard)
			require.NoError(t, err)
			if !shared {
				own.Local.Folder = hostFolder(own.Local.Folder, host)
			}
			own.hooks = []fit.Hook{fit.Each(1, func(_ context.Context, s *fit.State) error {
				if s.Step() == int64(at) {
					assert.Eventually(t, func() bool { // two hosts keep each file
						saved, _ := filepath.Glob(filepath.Join(dir, "near", "host-*", "*", "step-0000000006", "checkpoint.json"))
						return len(saved) == 2
					}, time.Minute, 10*time.Millisecond, "step 6 is saved before a host fails")
					return &train.NonFiniteError{} // which saves nothing
				}
				return nil
			})}
			result, err := runHost(t.Context(), own, opts)
			if at > 0 && err != nil {
				err = died
			}
			return result, err
		})
		require.NoError(t, err)
		return outcomes
	}
	for host, o := range life(8) {
		require.ErrorIs(t, o.err, died, "host %d", host)
	}
	for host, o := range life(0) {
		require.NoError(t, o.err, "host %d", host)
		assert.EqualValues(t, 6, o.Resumed, "host %d", host)
	}
	shared = true
	for host, o := range life(0) {
		assert.ErrorContains(t, o.err, "processes 0 and 1 have the same folder", "host %d", host)
	}
}

// TestProcessesSaveAndGoOn: the hosts are processes, which the end of the context terminates.
func TestProcessesSaveAndGoOn(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	cfg := small(t, 2, 2, "-steps 1000000 -out", out)
	ctx, cancel := context.WithCancel(context.Background())
	var stderr bytes.Buffer
	go func() {
		defer cancel()
		for saved := 0; saved == 0 && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			names, _ := filepath.Glob(filepath.Join(out, "checkpoints", "step-*", "*.json"))
			saved = len(names)
		}
	}()
	_, err := runProcesses(ctx, asTest(cfg, "-hosts 2 -save-every 20"), &bytes.Buffer{}, &stderr)
	var stopped *interrupt.Error
	require.ErrorAs(t, err, &stopped, "%s", &stderr)
	require.True(t, errors.Is(err, context.Canceled))
	require.Positive(t, stopped.Step)

	cfg.Steps = stopped.Step + 3
	result, err := runProcesses(context.Background(), asTest(cfg, "-hosts 2"), &bytes.Buffer{}, &stderr)
	require.NoError(t, err, "%s", &stderr)
	assert.Equal(t, stopped.Step, result.Resumed)
	assert.Equal(t, cfg.Steps, result.Steps)
}
