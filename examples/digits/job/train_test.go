package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/examples/digits/job"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

var update = flag.Bool("update", false, "write the golden files")

func openCPU(t testing.TB, devices int) *system.System {
	t.Helper()
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: devices, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sys.Close()) })
	return sys
}

// losses trains for some steps and returns the loss of each.
func losses(t *testing.T, sys *system.System, cfg job.Config) []float64 {
	t.Helper()
	data, err := job.Digits(cfg.Seed)
	require.NoError(t, err)
	cfg.LossEvery = 1
	var all []float64
	result, err := job.Train(context.Background(), sys, cfg, data, job.Hooks{Fit: []fit.Hook{fit.Each(1, func(_ context.Context, s *fit.State) error {
		loss, _ := s.Value(fit.Loss)
		all = append(all, loss)
		return nil
	})}})
	require.NoError(t, err)
	require.Equal(t, cfg.Steps, result.Steps)
	require.Len(t, all, cfg.Steps)
	return all
}

func TestLossesAreTheSameOnEveryMesh(t *testing.T) {
	sys := openCPU(t, 8)
	want := losses(t, sys, job.Config{Steps: 40, Batch: 64, Seed: 7})
	require.Less(t, want[39], want[0]/2)
	// Hidden units are a multiple of the logical devices, which powers of two leave alone.
	for _, mesh := range [][2]int{{2, 1}, {1, 2}, {4, 2}, {2, 4}, {8, 1}, {1, 8}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			got := losses(t, sys, job.Config{Replicas: mesh[0], Logical: mesh[1], Steps: 40, Batch: 64, Seed: 7})
			for i := range want {
				require.InDelta(t, want[i], got[i], 1e-4*math.Abs(want[i])+1e-6, "step %d", i+1)
			}
		})
	}
}

func TestMeshesThatLeaveDevicesIdleOrDivideNothing(t *testing.T) {
	sys := openCPU(t, 8)
	for _, mesh := range [][2]int{{3, 2}, {2, 3}, {1, 5}, {7, 1}} {
		got := losses(t, sys, job.Config{Replicas: mesh[0], Logical: mesh[1], Steps: 20, Seed: 7})
		assert.Less(t, got[19], got[0], "%v", mesh)
	}
}

func TestASeedDecidesEverything(t *testing.T) {
	sys := openCPU(t, 4)
	cfg := job.Config{Replicas: 2, Logical: 2, Steps: 10, Seed: 3}
	first := losses(t, sys, cfg)
	assert.Equal(t, first, losses(t, sys, cfg))
	cfg.Seed = 4
	assert.NotEqual(t, first, losses(t, sys, cfg))
}

func TestTheDefaultRunReaches95Percent(t *testing.T) {
	plugintest.Path(t, "cpu")
	var shown bytes.Buffer
	cfg := job.Config{Replicas: 4, Logical: 2, Devices: 8, Seed: 1}
	result, err := job.Run(context.Background(), cfg, job.Hooks{Show: &shown})
	require.NoError(t, err)
	require.NotNil(t, result.Accuracy)
	assert.GreaterOrEqual(t, *result.Accuracy, 0.95)
	assert.Equal(t, 359, result.Of)
	assert.Positive(t, result.Steps)
	assert.False(t, result.Interrupted)
	assert.Less(t, result.Seconds, 60.0)
	assert.Positive(t, result.ExamplesPerSecond)

	golden := filepath.Join("testdata", "show.txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, shown.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), shown.String())

	line, err := json.Marshal(result)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(line, &fields))
	for _, name := range []string{"accuracy", "replicas", "logical", "steps", "seconds", "examples_per_second"} {
		assert.Contains(t, fields, name)
	}
}

func TestARunThatIsInterruptedReturnsWhatItHas(t *testing.T) {
	sys := openCPU(t, 4)
	data, err := job.Digits(1)
	require.NoError(t, err)
	cfg := job.Config{Replicas: 2, Logical: 2, Steps: 1000}
	ctx, cancel := context.WithCancel(context.Background())
	result, err := job.Train(ctx, sys, cfg, data, job.Hooks{Fit: []fit.Hook{fit.Each(5, func(context.Context, *fit.State) error { cancel(); return nil })}})
	require.ErrorIs(t, err, context.Canceled)
	assert.True(t, result.Interrupted)
	assert.Equal(t, 5, result.Steps)
	assert.NotNil(t, result.Loss)
	assert.Nil(t, result.Accuracy)

	result, err = job.Train(ctx, sys, cfg, data, job.Hooks{})
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, result.Steps)

	cfg.Steps = 1
	_, err = job.Train(context.Background(), sys, cfg, data, job.Hooks{})
	require.NoError(t, err, "the devices can be used again")
}

func TestDataThatCannotBeLearntIsAnError(t *testing.T) {
	sys := openCPU(t, 2)
	data, err := job.Digits(1)
	require.NoError(t, err)
	cfg := job.Config{Replicas: 2, Steps: 5}
	unsuited := data
	unsuited.Hidden = 0
	_, err = job.Train(context.Background(), sys, cfg, unsuited, job.Hooks{})
	require.ErrorContains(t, err, "hidden units")

	data.Train.Images = slices.Repeat([]float32{float32(math.NaN())}, len(data.Train.Images))
	result, err := job.Train(context.Background(), sys, cfg, data, job.Hooks{})
	require.ErrorContains(t, err, "loss (NaN) is not finite after step 1")
	assert.Nil(t, result.Loss, "a NaN has no JSON form")
}
