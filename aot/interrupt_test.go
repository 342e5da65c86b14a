package aot_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// children returns the child processes of a process.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			all = append(all, child)
		}
	}
	return all
}

// gone reports whether a process has ended.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestAnInterruptedCompilationEndsAtOnceAndLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		code   int
		text   string
	}{{syscall.SIGINT, 130, "interrupted"}, {syscall.SIGTERM, 143, "terminated"}} {
		dir := t.TempDir()
		// The compiler needs minutes for this depth.
		cmd := exec.Command(userProgram(t), "-topology", "cpu:2", "-depth", "800", "-save", "user.step", "-text", "user.mlir",
			"-report", "user.html", "-json")
		var stdout, stderr bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
		cmd.Env = append(os.Environ(), "TPUSTRATEGY_CPU_PLUGIN="+plugintest.Path(t, "cpu"), "XDG_CACHE_HOME="+t.TempDir())
		require.NoError(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill() }()
		var compilers []int
		require.Eventually(t, func() bool {
			compilers = children(t, cmd.Process.Pid)
			return len(compilers) > 0
		}, time.Minute, 5*time.Millisecond, "the compiler has no process")
		require.NoError(t, cmd.Process.Signal(c.signal))
		begun := time.Now()
		_ = cmd.Wait()
		assert.Equal(t, c.code, cmd.ProcessState.ExitCode())
		assert.Less(t, time.Since(begun), 20*time.Second) // a second on an idle machine
		// On a loaded machine the progress line may have been printed before.
		said := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
		assert.Equal(t, "user: "+c.text, said[len(said)-1])
		for _, line := range said[:len(said)-1] {
			assert.Regexp(t, `^user: (tracing|lowering|compiling) user for `, line)
		}
		assert.JSONEq(t, `{"error": {"kind": "interrupted", "message": "`+c.text+`"}}`, stdout.String())
		for _, pid := range compilers {
			assert.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, time.Millisecond)
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}

func TestAnInterruptedSearchEndsAtOnceAndLeavesNothing(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	cmd := exec.Command(userProgram(t), "-topology", "v5e:2x2", "-plan", "plan.json", "-try", "depth=40,50,60,70,80",
		"-json")
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), "TPUSTRATEGY_TPU_PLUGIN="+plugintest.Libtpu(t), "XDG_CACHE_HOME="+cache)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	var compilers []int
	require.Eventually(t, func() bool {
		compilers = children(t, cmd.Process.Pid)
		return len(compilers) > 0
	}, 2*time.Minute, 5*time.Millisecond, "the compiler has no process")
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	begun := time.Now()
	_ = cmd.Wait()
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	assert.Less(t, time.Since(begun), 20*time.Second)
	assert.JSONEq(t, `{"error": {"kind": "interrupted", "message": "interrupted"}}`, stdout.String())
	for _, pid := range compilers {
		assert.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, time.Millisecond)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	kept, err := filepath.Glob(filepath.Join(cache, "tpustrategy", "plans", "*"))
	require.NoError(t, err)
	for _, one := range kept {
		assert.True(t, strings.HasSuffix(one, ".answer"), "%s is half written", one)
	}
}
