package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/ahead"
)

func TestACompilationWhoseFilesHaveNoPlaceIsNotBegun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, flag := range []string{"--output", "--text", "--save"} {
		for path, want := range map[string]string{
			dir: "is a directory", filepath.Join(dir, "none", "x"): "no such file or directory",
			filepath.Join(file, "x"): "is not a directory",
		} {
			// Nothing could be compiled: there is no plugin.
			code, stdout, stderr := commandLine(t, []string{"TPUSTRATEGY_CPU_PLUGIN=/none"}, "compile", "--example", "digits",
				"--topology", "cpu:2", flag, path)
			assert.Equal(t, exitUsage, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, "tpustrategy: compile: "+flag+": ")
			assert.Contains(t, stderr, want)
		}
	}
	for _, path := range []string{"", file, filepath.Join(dir, "new"), "/dev/null"} {
		assert.NoError(t, ahead.CheckWritable(path), path)
	}
}
