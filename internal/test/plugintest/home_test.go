package plugintest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

func TestOwnHomeIsAFolderForTheRun(t *testing.T) {
	mine := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", mine)
	t.Setenv("TPUSTRATEGY_TEST_SETTINGS", "")
	var own string
	code := plugintest.OwnHome(func() int {
		var err error
		own, err = os.UserConfigDir()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(own, "key"), nil, 0o600))
		assert.Zero(t, plugintest.OwnHome(func() int {
			inner, _ := os.UserConfigDir()
			assert.Equal(t, own, inner, "a process that a test starts has that of the test")
			return 0
		}))
		return 3
	})
	assert.Equal(t, 3, code)
	assert.NotEqual(t, mine, own)
	assert.NoDirExists(t, own)
}
