package plugintest

import (
	"errors"
	"fmt"
	"os"
)

// OwnHome runs tests with a folder of settings of their own, and answers their exit code:
// keys that they make are not put into the user's. It is for TestMain. Processes that a
// test starts share that of the test.
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
