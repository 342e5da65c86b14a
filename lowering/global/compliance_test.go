package global_test

import (
	"testing"

	"github.com/gomlx/compute/support/backendtest"
)

// TestCompliance runs GoMLX's own compliance suite.
func TestCompliance(t *testing.T) {
	for _, over := range []shape{{"4x2", 4, 2}} {
		t.Run(over.name, func(t *testing.T) { backendtest.RunAll(t, newBackend(t, over), nil) })
	}
}
