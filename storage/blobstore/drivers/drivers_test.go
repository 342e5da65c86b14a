package drivers

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const core = "github.com/tpustrategy/tpustrategy"

// TestEachCommandTakesObjectStores compares gs.json with the existing commands, and lists their
// dependencies with and without the overlay.
func TestEachCommandTakesObjectStores(t *testing.T) {
	data, err := os.ReadFile("gs.json")
	require.NoError(t, err)
	var overlay struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(data, &overlay))
	var packages []string
	for _, pattern := range []string{"../../../cmd/*/main.go", "../../../examples/*/main.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		for _, file := range found {
			folder := strings.TrimPrefix(filepath.Dir(file), "../../../")
			packages = append(packages, core+"/"+folder)
			assert.Equal(t, "drivers/gs.go.txt", overlay.Replace["../../"+folder+"/object_stores.go"],
				"a line of gs.json for %s", folder)
		}
	}
	assert.Len(t, overlay.Replace, len(packages))
	for _, p := range packages {
		assert.Contains(t, consists(t, "..", p, "-overlay", "drivers/gs.json"), core+"/storage/blobstore/gcs", p)
	}
}

// TestTheCoreHasNoObjectStores checks that the core module depends on no object store.
func TestTheCoreHasNoObjectStores(t *testing.T) {
	for _, p := range consists(t, "../../..", "./...") {
		for _, heavy := range []string{"gocloud.dev/", "cloud.google.com/go/storage", "github.com/aws/", "github.com/Azure/",
			"google.golang.org/grpc"} {
			assert.False(t, strings.HasPrefix(p, heavy), "the core imports %s", p)
		}
	}
}

// consists lists the dependencies of packages, in a folder.
func consists(t *testing.T, folder, pattern string, flags ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append(append([]string{"list", "-deps"}, flags...), pattern)...)
	cmd.Dir = folder
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}
