package clusterresolver

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEnvironmentReportsEveryMalformedVariable(t *testing.T) {
	_, err := ReadEnvironment(env("TPU_WORKER_ID", "x", "TPU_PROCESS_BOUNDS", "y", "MEGASCALE_PORT", "z",
		"MEGASCALE_COORDINATOR_ADDRESS", "a:b:c", "MEGASCALE_SLICE_ID", "-1"))
	for _, name := range []string{"TPU_WORKER_ID", "TPU_PROCESS_BOUNDS", "MEGASCALE_PORT", "MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_SLICE_ID"} {
		assert.ErrorContains(t, err, name)
	}
}
