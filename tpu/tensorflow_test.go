package tpu_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/conformance/valuecases"
	"github.com/tpustrategy/tpustrategy/tpu"
)

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../testdata/goldens/" + name)
	require.NoError(t, err)
	return data
}

func TestAssignmentsMatchTensorFlow(t *testing.T) {
	cases, err := valuecases.Assignments(readGolden(t, "device_assignment.json"))
	require.NoError(t, err)
	require.Len(t, cases, 108)
	valuecases.Run(t, cases, nil)
}

func TestDeviceTablesMatchTensorFlow(t *testing.T) {
	cases, err := valuecases.Shardings(readGolden(t, "sharding.json"))
	require.NoError(t, err)
	cases = slices.DeleteFunc(cases, func(c valuecases.Case) bool { return c.Section != "device_tables" })
	require.Len(t, cases, 8)
	valuecases.Run(t, cases, nil)
}

func TestAcceleratorTopologiesMatchTensorFlow(t *testing.T) {
	data := readGolden(t, "device_assignment.json")
	for text, golden := range map[string]string{"v2-8": "v2-8", "v3-32": "v3-32", "v3-128": "v3-128",
		"v5e-16": "v5e-16_4x4"} {
		a, err := tpu.ParseAccelerator(text)
		require.NoError(t, err)
		got, err := a.Topology()
		require.NoError(t, err)
		// TensorFlow's topologies do not contain device ids.
		want := valuecases.Topology(t, data, golden)
		assert.Equal(t, want.MeshShape(), got.MeshShape(), text)
		assert.Equal(t, want.DeviceCoordinates(), got.DeviceCoordinates(), text)
	}
}
