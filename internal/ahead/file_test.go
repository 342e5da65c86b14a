package ahead

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAFileIsWrittenWholeOrNotAtAll(t *testing.T) {
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a.json"), filepath.Join(dir, "link")
	require.NoError(t, WriteFile(path, text("one")))
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.Symlink(path, link))

	full := func(w io.Writer) error {
		_, _ = io.WriteString(w, "tw")
		return &os.PathError{Op: "write", Path: "elsewhere", Err: syscall.ENOSPC}
	}
	for _, name := range []string{path, link, filepath.Join(dir, "new")} {
		err := WriteFile(name, full)
		assert.ErrorIs(t, err, syscall.ENOSPC)
		assert.NotContains(t, err.Error(), ".tmp")
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "one", string(data))

	require.NoError(t, WriteFile(link, text("two")))
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "two", string(data), "the link stays a link")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())

	require.NoError(t, WriteFile("/dev/null", text("three")))
	var usage *UsageError
	assert.ErrorAs(t, WriteFile(dir, text("four")), &usage)
	missing := filepath.Join(dir, "none", "x")
	err = WriteFile(missing, text("five"))
	assert.ErrorAs(t, err, &usage)
	assert.EqualError(t, err, "writing "+missing+": no such file or directory")

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 2)
}

// The name of what is on its way can be foretold.
func TestAFileOnItsWayIsNotWrittenThroughALink(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "a.json")
	require.NoError(t, os.WriteFile(victim, []byte("of another program"), 0o644))
	require.NoError(t, os.Symlink(victim, temporaryPath(path)))
	require.NoError(t, WriteFile(path, func(w io.Writer) error { _, err := io.WriteString(w, "answer"); return err }))
	for name, want := range map[string]string{victim: "of another program", path: "answer"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
}
