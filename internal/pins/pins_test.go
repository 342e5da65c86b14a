package pins

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryLineOfTheTableIsAPin(t *testing.T) {
	lines := 0
	for line := range strings.Lines(tableText) {
		if !strings.HasPrefix(line, "#") {
			lines++
		}
	}
	pins := All()
	require.Len(t, pins, lines)
	for _, pin := range pins {
		assert.Regexp(t, `^[0-9a-f]{64}$`, pin.SHA256)
		assert.Regexp(t, `^[0-9a-f]{64}$`, pin.LibrarySHA256)
		assert.Regexp(t, `^\d+(\.\d+){2,3}$`, pin.Version)
		found, err := Find(pin.Kind, pin.GOARCH)
		require.NoError(t, err)
		assert.Equal(t, pin, found)
	}
}

func TestForSaysWhatThereIs(t *testing.T) {
	_, err := Find("gpu", "amd64")
	assert.ErrorContains(t, err, `no plugin kind "gpu"`)
	_, err = Find("tpu", "arm64")
	assert.ErrorContains(t, err, "not published for arm64")
}

func TestPathsAreKeyedByHash(t *testing.T) {
	pin, err := Find("cpu", "amd64")
	require.NoError(t, err)
	assert.Equal(t, "/c/tpustrategy/plugins/"+pin.SHA256+"/xla_cpu_pjrt.so", pin.LibraryPath("/c"))
	assert.Equal(t, "/c/tpustrategy/plugins/"+pin.SHA256+"/pjrt_c_api.h", pin.HeaderPath("/c"))
	cuda, err := Find("cuda", "amd64")
	require.NoError(t, err)
	assert.Equal(t, "/c/tpustrategy/plugins/"+cuda.SHA256+"/plugin/xla_cuda_plugin.so", cuda.LibraryPath("/c"),
		"it looks for its tools in ../nvidia")
	assert.Empty(t, Pin{SHA256: "0"}.HeaderPath("/c"))
}
