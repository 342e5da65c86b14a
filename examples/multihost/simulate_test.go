package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/examples/digits/job"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestHostsTrainToTheSameLossesAsOneProcess(t *testing.T) {
	for _, c := range []struct{ hosts, logical int }{{4, 2}, {4, 1}, {2, 4}, {8, 1}} {
		t.Run(fmt.Sprintf("%d hosts, %d logical devices", c.hosts, c.logical), func(t *testing.T) {
			cfg := small(t, c.hosts, c.logical)
			want, accuracy := alone(t, cfg)
			require.Len(t, want, cfg.Steps)
			require.Less(t, want[cfg.Steps-1], want[0])
			var mu sync.Mutex
			got := map[int][]float64{}
			outcomes, err := simulateEach(context.Background(), cfg, quiet, func(host int, opts system.Options) (job.Result, error) {
				return runHost(context.Background(), cfg, opts, eachStep(func(_ int, loss float64) {
					mu.Lock()
					defer mu.Unlock()
					got[host] = append(got[host], loss)
				}))
			})
			require.NoError(t, err)
			for host, o := range outcomes {
				require.NoError(t, o.err, "host %d", host)
				assert.Equal(t, want, got[host], "host %d", host)
				assert.Equal(t, accuracy, *o.result.Accuracy, "host %d", host)
			}
		})
	}
}

func TestAMissingHostIsNamedAtTheDeadline(t *testing.T) {
	cfg := small(t, 4, 2)
	cfg.missing, cfg.wait = 2, 2*time.Second
	start := time.Now()
	outcomes, err := simulateEach(context.Background(), cfg, quiet, func(_ int, opts system.Options) (job.Result, error) {
		return runHost(context.Background(), cfg, opts, job.Hooks{})
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(start), cfg.wait)
	assert.Less(t, time.Since(start), cfg.wait+10*time.Second)
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
		cfg := small(t, 4, 2)
		cfg.wait = 30 * time.Second
		start := time.Now()
		outcomes, err := simulateEach(context.Background(), cfg, quiet, func(host int, opts system.Options) (job.Result, error) {
			own := cfg
			if host == 3 {
				change(&own)
			}
			return runHost(context.Background(), own, opts, job.Hooks{})
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
