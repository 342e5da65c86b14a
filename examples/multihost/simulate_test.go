package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestHostsTrainToTheSameLossesAsOneProcess(t *testing.T) {
	for _, c := range []struct{ hosts, logical int }{{4, 2}, {4, 1}, {2, 4}, {8, 1}} {
		t.Run(fmt.Sprintf("%d hosts, %d logical devices", c.hosts, c.logical), func(t *testing.T) {
			cfg := small(t, c.hosts, c.logical)
			want, one := alone(t, cfg)
			require.Len(t, want, 25)
			require.Less(t, want[24], want[0])
			var mu sync.Mutex
			got := map[int][]float64{}
			outcomes, err := simulateEach(t.Context(), cfg, func(host int, opts system.Options) (trainer.ClassifierResult,
				error) {
				own, err := cfg.hostConfig(io.Discard)
				require.NoError(t, err)
				own.hooks = eachStep(func(_ int, loss float64) {
					mu.Lock()
					defer mu.Unlock()
					got[host] = append(got[host], loss)
				})
				return runHost(t.Context(), own, opts)
			})
			require.NoError(t, err)
			for host, o := range outcomes {
				require.NoError(t, o.err, "host %d", host)
				// The rows of a batch are dealt in another order, which rounds their sums otherwise.
				assert.InDeltaSlice(t, want, got[host], 1e-4, "host %d", host)
				assert.Equal(t, got[0], got[host], "host %d", host)
				assert.InDelta(t, *one.TestLoss, *o.TestLoss, 1e-4, "host %d", host)
			}
		})
	}
}

func TestAMissingHostIsNamedAtTheDeadline(t *testing.T) {
	cfg := small(t, 4, 2, "-missing 2 -wait 2s")
	start := time.Now()
	outcomes, err := simulateEach(t.Context(), cfg, func(_ int, opts system.Options) (trainer.ClassifierResult, error) {
		own, err := cfg.hostConfig(io.Discard)
		require.NoError(t, err)
		return runHost(t.Context(), own, opts)
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(start), cfg.StartTimeout)
	assert.Less(t, time.Since(start), cfg.StartTimeout+10*time.Second)
	for host, o := range outcomes {
		if host == cfg.missing {
			continue
		}
		assert.ErrorIs(t, o.err, context.DeadlineExceeded)
		assert.ErrorContains(t, o.err, "missing: /job:worker/task:2 (host-2:8476)")
	}
}

// TestAHostWithOtherSettingsIsNamed: by them, before anything is traced.
func TestAHostWithOtherSettingsIsNamed(t *testing.T) {
	for text, change := range map[string]func(*config){
		"seed 7":   func(c *config) { c.Seed = 7 },
		"batch 32": func(c *config) { c.Batch = 32 },
		"steps 26": func(c *config) { c.Steps = 26 },
	} {
		cfg := small(t, 4, 2, "-wait 30s")
		start := time.Now()
		outcomes, err := simulateEach(t.Context(), cfg, func(host int, opts system.Options) (trainer.ClassifierResult,
			error) {
			own, err := cfg.hostConfig(io.Discard)
			require.NoError(t, err)
			if host == 3 {
				change(&own)
			}
			return runHost(t.Context(), own, opts)
		})
		require.NoError(t, err)
		for host, o := range outcomes {
			var mismatch *strategy.MismatchError
			require.ErrorAs(t, o.err, &mismatch, "host %d", host)
			assert.Equal(t, []int{3}, mismatch.Differing)
			assert.Contains(t, mismatch.Texts[3], text)
		}
		assert.Less(t, time.Since(start), 25*time.Second, "nobody waits in vain")
	}
}
