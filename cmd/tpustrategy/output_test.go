package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/ahead"
	"github.com/tpustrategy/tpustrategy/report"
)

// fullDisk is a standard output on which every write fails.
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
		assert.Equal(t, "tpustrategy: the output is not complete: no space left on device; check the output file or pipe, "+
			"and run the command again\n", errs.String(), line)
	}
	out := newCheckedOutput(fullDisk{})
	_, err := out.Write([]byte("x"))
	assert.True(t, errors.Is(err, syscall.ENOSPC) && out.err == err)
}

func TestAnAnswerIsShownThoughItsReportCannotBeWritten(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		a := &app{stdout: &out}
		c := &compileCmd{Output: filepath.Join(t.TempDir(), "none", "x.json")}
		err := c.write(a, &cli{JSON: asJSON}, []ahead.Outcome{{Topology: "cpu:2", Report: &report.Report{Step: "digits"}}})
		var f *failure
		require.ErrorAs(t, err, &f)
		assert.Equal(t, &failure{Category: "failed", Message: "writing " + c.Output + ": no such file or directory",
			Reported: asJSON}, f)
		assert.Contains(t, out.String(), "digits")
	}
}
