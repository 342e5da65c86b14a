package accept

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// TestAOTLargeEachProgramCompiles compiles each program of the parts with libtpu for slices of one
// host and of several, as one process after another loads libtpu.
func TestAOTLargeEachProgramCompiles(t *testing.T) {
	plugintest.Large(t)
	for _, name := range []string{"v5e:2x2", "v5litepod-16", "v5p:2x2x2"} {
		t.Run(name, func(t *testing.T) {
			if !plugintest.TPUChild(t) {
				return
			}
			slice := plugintest.Slice(t, name)
			compiled := 0
			var lacks []string
			err := Compile(t.Context(), slice, func(program string, optional bool, err error) {
				switch {
				case err == nil:
					compiled++
				case optional:
					lacks = append(lacks, program)
				default:
					t.Errorf("%s: %v", program, err)
				}
			})
			assert.NoError(t, err)
			t.Logf("%s: %d programs compiled; not available: %v", name, compiled, lacks)

			var found []Device
			for _, d := range slice.Description().Devices() {
				found = append(found, describeDevice(d, slice.Topology()))
			}
			a, err := tpu.ParseAccelerator(name)
			require.NoError(t, err)
			table, err := a.Topology()
			require.NoError(t, err)
			wrong, odd := CheckDevices(found, table, nil)
			require.Empty(t, wrong)
			assert.Empty(t, odd)
		})
	}
}

// TestAOTLargeTheTrainingCompilesOverTwoSlices compiles each mesh of the training, the one of four
// axes and the compact one of as many devices, too.
func TestAOTLargeTheTrainingCompilesOverTwoSlices(t *testing.T) {
	plugintest.Large(t)
	if !plugintest.TPUChild(t) {
		return
	}
	slice := plugintest.Slice(t, "2x v5litepod-16")
	names := map[string]bool{}
	for _, c := range trainCases(len(sortedIDs(slice.Topology().DeviceIDs())), slice.Topology().NumSlices()) {
		assert.NoError(t, compileTraining(t.Context(), slice, c), c.name)
		names[c.name] = true
	}
	assert.Contains(t, names, "float32, 4 x 8")
	assert.Contains(t, names, "float32 on four axes, 4 x 8")
}
