package upstream_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests in the folder of the patches.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../../docs/upstream"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
