package report_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/published"
)

// A program that is partitioned and fused but not finished has no estimates of cycles. Its
// prediction is still close to the prediction of the finished program.
func TestAProbeIsPredictedAsTheFinishedProgram(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	slice := plugintest.Slice(t, "v5e:2x2")
	var probed []byte
	registration, err := slice.Plugin().Register(pjrt.Transform{Name: "read", Stage: pjrt.AfterScheduler,
		Apply: func(module []byte) ([]byte, error) {
			probed = module
			return nil, nil
		}})
	require.NoError(t, err)
	defer registration.Close()
	for name, text := range map[string]string{"matmul": published.Operations()[0].Text,
		"layers": string(layers(24, true))} {
		o := pjrt.CompileOptions{Partitions: 1, DeviceAssignment: [][]int{{0}}}
		if name == "layers" {
			o = pjrt.CompileOptions{Partitions: 2, DeviceAssignment: [][]int{{0, 1}}, SPMD: true, Shardy: true}
		}
		program, err := slice.Compile(t.Context(), pjrt.Program{Code: []byte(text), Trusted: true}, o)
		require.NoError(t, err, name)
		optimized, err := program.OptimizedProgram()
		require.NoError(t, err)
		stats, err := program.MemoryStats()
		require.NoError(t, err)
		require.NoError(t, program.Close())
		finished := predict(t, optimized, "v5e:2x2").Prediction
		probe := predict(t, pjrt.Program{Code: probed, Format: pjrt.FormatHLO}, "v5e:2x2")
		early := probe.Prediction
		assert.InEpsilon(t, stats.Peak, probe.PeakBytes, 0.02, name)
		t.Logf("%s: %s of a probe, %s finished", name, units.Seconds(early.Seconds), units.Seconds(finished.Seconds))
		assert.Zero(t, finished.Closed, name)
		assert.Positive(t, early.Closed, name)
		assert.Less(t, math.Abs(math.Log(early.Seconds/finished.Seconds)), math.Log(1.25), name)
		assert.InEpsilon(t, finished.Interconnect.Exposed+1, early.Interconnect.Exposed+1, 1e-4, name)
	}
}
