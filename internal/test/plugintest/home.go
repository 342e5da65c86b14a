package plugintest

import (
	"errors"
	"fmt"
	"os"
)

// OwnHome runs tests with a temporary settings folder and returns their exit code. Keys that the
// tests create are not stored in the user's folder. Call it in TestMain. Child processes use the
// same folder.
func OwnHome(run func() int) int {
	const settings, owned = "XDG_CONFIG_HOME", "TPUSTRATEGY_TEST_SETTINGS"
	if own := os.Getenv(owned); own != "" && own == os.Getenv(settings) {
		return run()
	}
	dir, err := os.MkdirTemp("", "settings-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(os.Setenv(settings, dir), os.Setenv(owned, dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plugintest:", err)
		return 1
	}
	return run()
}
