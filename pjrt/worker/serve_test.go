package worker_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

func TestDefaultCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command")
	}
	plugintest.Path(t, "cpu")
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", filepath.Join(dir, "tpustrategy"),
		"github.com/tpustrategy/tpustrategy/cmd/tpustrategy").CombinedOutput()
	require.NoError(t, err, string(out))
	t.Setenv("PATH", dir)
	c, err := worker.New(worker.Options{})
	require.NoError(t, err)
	client := plugintest.CPU(t, 1)
	x, err := c.Compile(context.Background(), client, addOne, pjrt.CompileOptions{})
	require.NoError(t, err)
	require.NoError(t, x.Close())
}

// TestParent runs in a child process. It starts a worker that compiles for a long time, and is then
// killed.
func TestParent(t *testing.T) {
	if os.Getenv("WORKER_TEST_PARENT") == "" {
		t.Skip("run by TestWorkerExitsWithParent")
	}
	client := plugintest.CPU(t, 1)
	go func() {
		awaitWorker(t, os.Getpid())
		fmt.Println("compiling")
	}()
	_, _ = newCompiler(t, worker.Options{}).Compile(context.Background(), client, sorts(7000), pjrt.CompileOptions{})
}

func TestWorkerExitsWithParent(t *testing.T) {
	plugintest.Path(t, "cpu")
	cmd := exec.Command(os.Args[0], "-test.run=^TestParent$")
	cmd.Env = append(os.Environ(), "WORKER_TEST_PARENT=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pids := workers(t, cmd.Process.Pid)
	require.Len(t, pids, 1)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pids[0]))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, compileTime/2, 20*time.Millisecond)
}
