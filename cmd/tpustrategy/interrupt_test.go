package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// interruptedRun runs a command line that is interrupted once the file exists, or at once if there
// is no name.
func interruptedRun(t *testing.T, environ []string, once string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if once == "" {
		cancel(&command.Signal{Signal: syscall.SIGINT})
	} else {
		go func() {
			for ctx.Err() == nil {
				if _, err := os.Stat(once); err == nil {
					cancel(&command.Signal{Signal: syscall.SIGTERM})
				}
				time.Sleep(5 * time.Millisecond)
			}
		}()
	}
	executable, err := os.Executable()
	require.NoError(t, err)
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, stdin: strings.NewReader(""), environ: environ, executable: executable,
		argv0: "tpustrategy",
		getenv: func(name string) string {
			if strings.HasSuffix(name, "_PLUGIN") && name != "TPUSTRATEGY_CUDA_PLUGIN" {
				return plugintest.Path(t, "cpu")
			}
			return ""
		}}
	code = a.run(ctx, args)
	return code, out.String(), errs.String()
}

func TestAnInterruptIsOneLineAndItsExitCode(t *testing.T) {
	for _, line := range []string{
		"doctor", "topology v5e:4x4", "assign v3-8 --shape 1,1,1,2", "compile --example digits --topology cpu:2",
		"compile --example digits --topology cpu:2,cpu:4", "install cpu", "plan --example gpt --topology v5e:2x2",
		"validate --row 34",
	} {
		code, stdout, stderr := interruptedRun(t, os.Environ(), "", strings.Fields(line)...)
		assert.Equal(t, 130, code, line)
		assert.Equal(t, "tpustrategy: interrupted\n", stderr, line)
		assert.Empty(t, stdout, line)
	}
	_, stdout, _ := interruptedRun(t, os.Environ(), "", "doctor", "--json")
	assert.JSONEq(t, `{"error": {"kind": "interrupted", "message": "interrupted"}}`, stdout)
}

func TestAnInterruptedInstallEndsItsPipAndLeavesNothing(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	started := filepath.Join(bin, "started")
	// Its number is written before the file has its name, and it would go on for five minutes.
	python := "#!/bin/sh\n[ \"$3\" = --version ] || { echo $$ >" + started + ".pid; mv " + started + ".pid " + started +
		"; exec sleep 300; }\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "python3"), []byte(python), 0o755))
	begun := time.Now()
	code, _, stderr := interruptedRun(t, append(os.Environ(), "XDG_CACHE_HOME="+cache, "PATH="+bin+":"+os.Getenv("PATH")),
		started, "install", "cpu")
	assert.Equal(t, 143, code)
	assert.Contains(t, stderr, "tpustrategy: terminated\n")
	assert.NotContains(t, stderr, "killed")
	text, err := os.ReadFile(started)
	require.NoError(t, err)
	pip, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	assert.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pip))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, time.Minute, time.Millisecond, "pip ends with the script")
	assert.Less(t, time.Since(begun), 2*time.Minute, "nobody waited for it")
	left, err := filepath.Glob(filepath.Join(cache, "tpustrategy", "plugins", "*"))
	require.NoError(t, err)
	hidden, err := filepath.Glob(filepath.Join(cache, "tpustrategy", "plugins", ".install-*"))
	require.NoError(t, err)
	assert.Empty(t, append(left, hidden...))
}
