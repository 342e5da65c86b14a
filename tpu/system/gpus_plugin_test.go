package system_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func TestGPUsAreDescribedWithoutHardware(t *testing.T) {
	plugin := plugintest.CUDA(t)
	for name, model := range map[string]string{"a100": "NVIDIA A100-SXM4-80GB", "h100": "NVIDIA H100 80GB HBM3",
		"h200": "NVIDIA H200 141GB HBM3e", "b200": "NVIDIA B200"} {
		slice, err := system.Describe(t.Context(), name+":16", system.DescribeOptions{Plugin: plugin})
		require.NoError(t, err, name)
		facts, topology := slice.Info(), slice.Topology()
		assert.Equal(t, name+":16", facts.Name)
		assert.Equal(t, []int{16, 2, 16, 1}, []int{facts.Devices, facts.Hosts, facts.Chips, facts.DevicesPerChip})
		assert.Equal(t, model, slice.Description().Devices()[0].Kind())
		assert.Equal(t, 2, topology.NumTasks())
		assert.Equal(t, [4]int{16, 1, 1, 1}, topology.MeshShape())
		assert.Positive(t, facts.HBMBytes)
		require.NoError(t, slice.Close())
	}
}
