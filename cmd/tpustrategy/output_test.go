package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/report"
)

func TestAFileIsWrittenWholeOrNotAtAll(t *testing.T) {
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a.json"), filepath.Join(dir, "link")
	require.NoError(t, writeFile(path, text("one")))
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.Symlink(path, link))

	full := func(w io.Writer) error {
		_, _ = io.WriteString(w, "tw")
		return &os.PathError{Op: "write", Path: "elsewhere", Err: syscall.ENOSPC}
	}
	for _, name := range []string{path, link, filepath.Join(dir, "new")} {
		err := writeFile(name, full)
		assert.ErrorIs(t, err, syscall.ENOSPC)
		assert.NotContains(t, err.Error(), ".tmp")
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "one", string(data))

	require.NoError(t, writeFile(link, text("two")))
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "two", string(data), "the link stays a link")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())

	require.NoError(t, writeFile("/dev/null", text("three")))
	var usage *usageError
	assert.ErrorAs(t, writeFile(dir, text("four")), &usage)
	missing := filepath.Join(dir, "none", "x")
	err = writeFile(missing, text("five"))
	assert.ErrorAs(t, err, &usage)
	assert.EqualError(t, err, "writing "+missing+": no such file or directory")

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 2)
}

// fullDisk is a standard output that takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestAnAnswerThatCannotBeWrittenIsAnError(t *testing.T) {
	for _, line := range []string{
		"doctor", "doctor --json", "topology v5e:4x4", "assign v5e:4x4", "visualize a,- --shape 4,4 --mesh a=2",
		"--help", "doctor --help",
	} {
		var errs bytes.Buffer
		a := &app{stdout: fullDisk{}, stderr: &errs, stdin: strings.NewReader(""), getenv: func(string) string { return "" }}
		assert.Equal(t, exitFailed, a.run(t.Context(), strings.Fields(line)), line)
		assert.Equal(t, "tpustrategy: the answer is not complete: no space left on device; see where it goes, and ask again\n", errs.String(), line)
	}
	out := &output{w: fullDisk{}}
	_, err := out.Write(nil)
	assert.True(t, errors.Is(err, syscall.ENOSPC) && out.err == err)
}

func TestAnAnswerIsShownThoughItsReportCannotBeWritten(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		a := &app{stdout: &out}
		c := &compileCmd{Report: filepath.Join(t.TempDir(), "none", "x.json")}
		err := c.write(a, &cli{JSON: asJSON}, []compiled{{Topology: "cpu:2", Report: &report.Report{Step: "digits"}}})
		var f *failure
		require.ErrorAs(t, err, &f)
		assert.Equal(t, &failure{Kind: "failed", Message: "writing " + c.Report + ": no such file or directory", reported: asJSON}, f)
		assert.Contains(t, out.String(), "digits")
	}
}
