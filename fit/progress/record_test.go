package progress

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
	"github.com/tpustrategy/tpustrategy/report/phase"
)

func TestARecordIsNeitherReadFromAPipeNorWrittenThroughALink(t *testing.T) {
	dir := t.TempDir()
	p := at(phase.Compiling, "step", 1000)
	pipe, link, victim := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "victim")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.WriteFile(victim, []byte("of another program"), 0o644))
	require.NoError(t, os.Symlink(victim, link))
	hangtest.Within(t, func() {
		for _, path := range []string{pipe, link, "/dev/zero"} {
			appendRecord(path, p, 5*time.Second)
			assert.Zero(t, estimateDuration(path, p), path)
		}
	})
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "of another program", string(text))
	whole := filepath.Join(dir, "record")
	appendRecord(whole, p, 5*time.Second)
	assert.Equal(t, 5*time.Second, estimateDuration(whole, p).expected)
}
