package clusterresolver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEnvironmentReportsEveryMalformedVariable(t *testing.T) {
	_, err := ReadEnvironment(env("TPU_WORKER_ID", "x", "TPU_PROCESS_BOUNDS", "y", "MEGASCALE_PORT", "z",
		"MEGASCALE_COORDINATOR_ADDRESS", "a:b:c", "MEGASCALE_SLICE_ID", "-1"))
	for _, name := range []string{"TPU_WORKER_ID", "TPU_PROCESS_BOUNDS", "MEGASCALE_PORT", "MEGASCALE_COORDINATOR_ADDRESS",
		"MEGASCALE_SLICE_ID"} {
		assert.ErrorContains(t, err, name)
	}
}

// Names with control characters or terminal escape codes are rejected, and no error or text prints them.
func TestNamesWithControlCharactersAreRejected(t *testing.T) {
	for _, evil := range []string{"v5e-8\x1b[31m", "\x1b]0;title\a", "v5e-8\x00", "v5e\n-8", "v5e-8\u009b1m",
		"v5e-8\u202e", "v5e-8\xff"} {
		for _, name := range []string{"TPU_ACCELERATOR_TYPE", "TPU_TOPOLOGY", "TPU_NAME"} {
			e, err := ReadEnvironment(env(name, evil))
			var wrong *ParseError
			require.ErrorAs(t, err, &wrong, "%s=%q", name, evil)
			assert.Equal(t, name, wrong.Source)
			assert.True(t, isPrintable(err.Error()), "%q", err.Error())
			assert.Empty(t, e.AcceleratorType+e.Topology+e.Name)
		}
		text := Cluster{TPU: TPU{AcceleratorType: evil, Name: evil}}.String()
		assert.True(t, isPrintable(strings.ReplaceAll(text, "\n", " ")), "%q", text)
	}
	e, err := ReadEnvironment(env("TPU_ACCELERATOR_TYPE", " v5litepod-16\n", "TPU_NAME", "t\u00fcr"))
	require.NoError(t, err)
	assert.Equal(t, "v5litepod-16", e.AcceleratorType)
}
