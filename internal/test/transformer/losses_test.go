package transformer_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// devices is the number of devices of the tests' meshes.
const devices = 8

// losses returns the losses of training steps on the same tokens.
func losses(t *testing.T, sys *system.System, c transformer.Config, replicas, logicalDevices,
	steps int) (all []float64) {
	t.Helper()
	s := strategytest.On(t, sys, c.Options(replicas, logicalDevices))
	step := c.Step(s, model.NewStore())
	tokens := c.Tokens()
	for range steps {
		loss, err := step.Run(t.Context(), tokens)
		require.NoError(t, err)
		all = append(all, strategytest.Float64(t, loss))
	}
	return all
}

// jaxLosses contains the first three losses of the same model in JAX 0.10.2, on one device of the
// same plugin: peer.py --batch 8 --plugin xla_cpu_pjrt.so
var jaxLosses = []float64{5.607492923736572, 5.209209442138672, 5.002259254455566}

// TestLossesAreThoseOfJAX uses one mesh with several replicas and several logical devices.
func TestLossesAreThoseOfJAX(t *testing.T) {
	sys := plugintest.System(t, devices)
	c := transformer.Peer()
	c.Batch = 8
	got := losses(t, sys, c, 4, 2, 3)
	t.Log(got)
	assert.InEpsilonSlice(t, jaxLosses, got, 2e-6)
}

func TestEachMeshGivesTheLossesOfOneDevice(t *testing.T) {
	sys := plugintest.System(t, devices)
	half := transformer.Tiny()
	half.Compute = dtypes.BFloat16
	for _, model := range []struct {
		name      string
		config    transformer.Config
		mesh      [2]int
		tolerance float64
	}{
		{"llama", transformer.TinyLlama(), [2]int{2, 4}, 2e-5},
		{"bfloat16", half, [2]int{4, 2}, 2e-3},
	} {
		t.Run(model.name, func(t *testing.T) {
			want := losses(t, sys, model.config, 1, 1, 4)
			require.Less(t, want[3], want[0], "it learns")
			got := losses(t, sys, model.config, model.mesh[0], model.mesh[1], 4)
			t.Log(want, got)
			assert.InEpsilonSlice(t, want, got, model.tolerance)
		})
	}
}
