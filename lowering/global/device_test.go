package global_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAnotherDefaultDeviceRunsAlone executes one program on all devices and on device 3 alone.
func TestAnotherDefaultDeviceRunsAlone(t *testing.T) {
	b := newBackend(t, shape{"4x2", 4, 2})
	s := shapes.Make(dtypes.Float32, 8)
	builder := b.Builder("twice")
	x, err := builder.Main().Parameter("x", s, nil)
	require.NoError(t, err)
	y, err := builder.Main().Add(x, x)
	require.NoError(t, err)
	require.NoError(t, builder.Main().Return([]compute.Value{y}, nil))
	exe, err := builder.Compile()
	require.NoError(t, err)
	want := []float32{0, 2, 4, 6, 8, 10, 12, 14}
	for _, num := range []compute.DeviceNum{0, 3, 0} {
		in, err := b.BufferFromFlatData(num, []float32{0, 1, 2, 3, 4, 5, 6, 7}, s)
		require.NoError(t, err)
		out, err := exe.Execute([]compute.Buffer{in}, nil, num)
		require.NoError(t, err)
		at, err := out[0].DeviceNum()
		require.NoError(t, err)
		assert.Equal(t, num, at)
		got := make([]float32, 8)
		require.NoError(t, out[0].ToFlatData(got))
		assert.Equal(t, want, got)
		other, err := out[0].CopyToDevice(5)
		require.NoError(t, err)
		require.NoError(t, out[0].Finalize())
		require.NoError(t, out[0].Finalize(), "twice")
		require.NoError(t, other.ToFlatData(got))
		assert.Equal(t, want, got)
	}
}
