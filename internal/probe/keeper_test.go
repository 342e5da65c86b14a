package probe

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

const square = `func.func @main(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}`

// A program is compiled once for a slice, and so is one that is too large; other programs, slices and
// flags of the compiler are others.
func TestAKeeperCompilesOnce(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	k := &CachingCompiler{CacheDir: filepath.Join(t.TempDir(), "kept")}
	slice, other := plugintest.Slice(t, "v5e:2x2"), plugintest.Slice(t, "v5e:2x4")
	compile := func(of *pjrt.Topology, text string) (*pjrt.Executable, error) {
		return k.CompileTopology(t.Context(), of, pjrt.Program{Code: []byte(text), Trusted: true},
			pjrt.CompileOptions{Partitions: 1, DeviceAssignment: [][]int{{0}}})
	}
	files := func() int {
		all, err := os.ReadDir(k.CacheDir)
		require.NoError(t, err)
		return len(all)
	}
	first, err := compile(slice.Description(), square)
	require.NoError(t, err)
	took := k.Duration
	k.Duration = 0
	again, err := compile(slice.Description(), square)
	require.NoError(t, err)
	assert.Equal(t, took, k.Duration, "how long it took then")
	assert.Positive(t, took)
	one, err := first.Record()
	require.NoError(t, err)
	two, err := again.Record()
	require.NoError(t, err)
	assert.Equal(t, one.Memory, two.Memory)
	assert.Equal(t, one.Cost, two.Cost)
	assert.Equal(t, one.Optimized, two.Optimized)
	assert.NotEmpty(t, two.Optimized.Code)
	assert.Equal(t, 1, files())

	_, err = compile(other.Description(), square)
	require.NoError(t, err)
	assert.Equal(t, 2, files())
	t.Setenv("XLA_FLAGS", "--xla_dump_max_hlo_modules=1")
	_, err = compile(slice.Description(), square)
	require.NoError(t, err)
	assert.Equal(t, 3, files())

	const huge = "func.func @main(%x: tensor<9000000000xf32>) -> tensor<9000000000xf32> {\n  %y = stablehlo.add %x, %x " +
		": tensor<9000000000xf32>\n  return %y : tensor<9000000000xf32>\n}"
	for range 2 {
		_, err = compile(slice.Description(), huge)
		assert.ErrorIs(t, err, pjrt.ResourceExhausted)
		assert.Equal(t, 4, files())
	}
	_, err = compile(slice.Description(), "nothing")
	assert.Error(t, err)
	assert.False(t, errors.Is(err, pjrt.ResourceExhausted))
	assert.Equal(t, 4, files(), "other errors are not kept")
}
