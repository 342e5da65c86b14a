package global_test

import (
	"os"
	"testing"

	"github.com/gomlx/compute/support/backendtest"
)

// TestCompliance runs GoMLX's own compliance suite on a grid, and on the other meshes as well where
// the tests that GoMLX ships are run (make test-gomlx).
func TestCompliance(t *testing.T) {
	meshes := shapesOfMesh
	if os.Getenv("TPUSTRATEGY_GOMLX_SUITES") == "" {
		meshes = []shape{{"4x2", 4, 2}}
	}
	for _, over := range meshes {
		t.Run(over.name, func(t *testing.T) { backendtest.RunAll(t, newBackend(t, over), nil) })
	}
}
