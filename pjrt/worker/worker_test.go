package worker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

// command is the result of worker.Main.
var command []string

func TestMain(m *testing.M) {
	command = worker.Main(stop, damages)
	os.Exit(plugintest.OwnHome(m.Run))
}

func newCompiler(t *testing.T, o worker.Options) *worker.Compiler {
	t.Helper()
	o.Command = command
	c, err := worker.New(o)
	require.NoError(t, err)
	return c
}

func module(signature, body string) pjrt.Program {
	return pjrt.Program{Code: []byte("module @m {\nfunc.func public @main" + signature + " {\n" + body + "\n}\n}\n")}
}

var addOne = module("(%x: tensor<4xf32>) -> tensor<4xf32>", `%one = stablehlo.constant dense<1.0> : tensor<4xf32>
  %y = stablehlo.add %x, %one : tensor<4xf32>
  return %y : tensor<4xf32>`)

// compileTime is less than the time to compile 7000 sorts on any machine.
const compileTime = time.Minute

// sorts returns a program with n sorts, which is slow to compile.
func sorts(n int) pjrt.Program {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `%%v%d = "stablehlo.sort"(%%v%d) ({
^bb0(%%a: tensor<f32>, %%b: tensor<f32>):
  %%c = stablehlo.compare LT, %%a, %%b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %%c : tensor<i1>
}) {dimension = 0 : i64} : (tensor<33x33xf32>) -> tensor<33x33xf32>
`, i+1, i)
	}
	fmt.Fprintf(&b, "return %%v%d : tensor<33x33xf32>", n)
	return module("(%v0: tensor<33x33xf32>) -> tensor<33x33xf32>", b.String())
}

// workers returns the process ids of the workers of a parent process.
func workers(t *testing.T, parent int) (pids []int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range found {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if (parent == 0 || fields[1] == strconv.Itoa(parent)) && strings.Contains(string(cmdline), command[1]) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitWorker waits until a process has started a worker.
func awaitWorker(t *testing.T, parent int) {
	t.Helper()
	for len(workers(t, parent)) == 0 && t.Context().Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// requireNoWorkers waits until all workers have exited, which must be faster than their
// compilations.
func requireNoWorkers(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(workers(t, os.Getpid())) == 0 }, compileTime/2, 20*time.Millisecond)
}

func TestCompileAndRun(t *testing.T) {
	leaktest.Check(t)
	ctx := context.Background()
	client := plugintest.CPU(t, 3)
	x, err := newCompiler(t, worker.Options{}).Compile(ctx, client, addOne, pjrt.CompileOptions{})
	require.NoError(t, err)
	defer x.Close()
	b, err := client.BufferFromHost(ctx, make([]byte, 16), pjrt.F32, []int{4}, client.Devices()[0])
	require.NoError(t, err)
	defer b.Close()
	out := [][]*pjrt.Buffer{{nil}}
	require.NoError(t, x.Execute(ctx, [][]*pjrt.Buffer{{b}}, out, pjrt.ExecuteOptions{}))
	defer out[0][0].Close()
	got := make([]byte, 16)
	require.NoError(t, out[0][0].ToHost(ctx, got))
	assert.Equal(t, []byte{0, 0, 0x80, 0x3f}, got[:4])

	// The executable keeps its serialized form.
	serialized, err := x.Executable().Serialize()
	require.NoError(t, err)
	again, err := client.Load(ctx, serialized, pjrt.LoadOptions{})
	require.NoError(t, err)
	require.NoError(t, again.Close())
	requireNoWorkers(t)
}

func TestParallelWorkers(t *testing.T) {
	client := plugintest.CPU(t, 2)
	for _, parallel := range []int{1, 3} {
		c := newCompiler(t, worker.Options{MaxWorkers: parallel})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				x, err := c.Compile(context.Background(), client, addOne, pjrt.CompileOptions{})
				if assert.NoError(t, err) {
					assert.NoError(t, x.Close())
				}
			})
		}
		all.Wait()
	}
	// A waiting compilation returns when its context ends.
	c := newCompiler(t, worker.Options{MaxWorkers: 1})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			_, err := c.Compile(ctx, client, sorts(7000), pjrt.CompileOptions{})
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	time.Sleep(200 * time.Millisecond)
	cancel()
	all.Wait()
	requireNoWorkers(t)
}

func TestInvalidCommand(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var start *worker.Error
	_, err := worker.New(worker.Options{})
	require.ErrorAs(t, err, &start)
	assert.Equal(t, worker.NotStarted, start.Reason)
	require.ErrorContains(t, err, "worker.Main")
	_, err = worker.New(worker.Options{Command: []string{}})
	require.ErrorAs(t, err, &start)
	client := plugintest.CPU(t, 1)
	for _, c := range []struct {
		command []string
		reason  worker.Reason
	}{{[]string{"/no/such/program"}, worker.NotStarted}, {[]string{"/bin/true"}, worker.Died},
		{[]string{"/bin/cat"}, worker.Died}} {
		compiler, err := worker.New(worker.Options{Command: c.command, Timeout: 5 * time.Second})
		require.NoError(t, err)
		_, err = compiler.Compile(context.Background(), client, addOne, pjrt.CompileOptions{})
		require.ErrorAs(t, err, &start, "%v", c.command)
		if c.command[0] != "/bin/cat" { // it waits for its input to end
			assert.Equal(t, c.reason, start.Reason, "%v", err)
		}
	}
	_, err = new(worker.Compiler).Compile(context.Background(), client, addOne, pjrt.CompileOptions{})
	require.ErrorAs(t, err, &start)
}
