package main

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/hangtest"
)

func TestWhatIsNoFileIsNotReadByACommand(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, "/dev/zero"} {
		for _, args := range [][]string{{"curve", path, "-o", filepath.Join(dir, "x.svg")}, {"report", path}} {
			hangtest.Within(t, func() {
				code, _, stderr := commandLine(t, nil, args...)
				assert.NotZero(t, code, args)
				assert.Contains(t, stderr, "it is no regular file", args)
			})
		}
	}
	hangtest.Within(t, func() {
		_, stdout, _ := commandLine(t, []string{"TPUSTRATEGY_CPU_PLUGIN=" + pipe, "TPUSTRATEGY_TPU_PLUGIN=" + pipe}, "doctor")
		assert.Contains(t, stdout, pipe)
	})
}
