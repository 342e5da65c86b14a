package uplot

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLibraryHash(t *testing.T) {
	out, err := exec.Command("sha256sum", "--check", "--strict", "sha256sums").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, 3, strings.Count(string(out), ": OK"))
	assert.Contains(t, Program(), "Copyright (c)")
}
