package gomlx_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/report"
)

var built struct {
	sync.Once
	path string
	err  error
	out  []byte
}

// transformer builds an ordinary GoMLX program, which uses this module only through its
// environment.
func transformer(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "transformer"); built.err == nil {
			built.path = filepath.Join(dir, "transformer")
			built.out, built.err = exec.Command("go", "build", "-ldflags=-w", "-o", built.path,
				"./testdata/transformer").CombinedOutput()
		}
	})
	require.NoError(t, built.err, "%s", built.out)
	return built.path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.path != "" {
		_ = os.RemoveAll(filepath.Dir(built.path))
	}
	os.Exit(code)
}

// program returns the program with a configuration.
func program(t *testing.T, config string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(transformer(t), args...)
	cmd.Env = append(os.Environ(), "GOMLX_BACKEND=tpustrategy"+config, "TPUSTRATEGY_CPU_PLUGIN="+plugintest.Path(t, "cpu"),
		"TF_CPP_MIN_LOG_LEVEL=2",
		"TPU_LOG_DIR=disabled", "TPU_STDERR_LOG_LEVEL=3", "TPU_MIN_LOG_LEVEL=3", "XDG_CONFIG_HOME="+t.TempDir())
	return cmd
}

// run runs the program.
func run(t *testing.T, config string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := program(t, config, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestAnUnchangedProgramTrainsAsItsEnvironmentSays(t *testing.T) {
	args := []string{"-layers", "1", "-width", "16", "-steps", "2"}
	want, stderr, code := run(t, "", args...)
	require.Zero(t, code, stderr)
	require.Equal(t, 2, strings.Count(want, "loss"))
	got, stderr, code := run(t, ":devices=4,logical=2,rules=megatron+fsdp,explain=1", args...)
	require.Zero(t, code, stderr)
	var a, b [2]float64
	for i, text := range []string{want, got} {
		_, err := fmt.Sscanf(text, "step 0: loss %f\nstep 1: loss %f", &[]*[2]float64{&a, &b}[i][0],
			&[]*[2]float64{&a, &b}[i][1])
		require.NoError(t, err)
	}
	assert.InDeltaSlice(t, a[:], b[:], 1e-4)
	assert.Contains(t, stderr, `tpustrategy: program "Trainer#1" on replica=2,logical=2`)

	_, stderr, code = run(t, ":devices=4,logicl=2", args...)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, `transformer: gomlx: config "devices=4,logicl=2": option "logicl": unknown option; the `+
		`options are plugin, devices, logical`)
}

// The compiler runs in a separate process of the same program.
func TestAnUnchangedProgramStopsWithTheReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	stdout, stderr, code := run(t, ":topology=cpu:8,logical=2,rules=megatron,report="+file, "-layers", "1", "-width", "16")
	assert.Zero(t, code, stderr)
	assert.NotContains(t, stderr, "goroutine")
	assert.Contains(t, stdout,
		`program "Trainer#1" is compiled for cpu:8 and not run, as topology= requests; the report is in `+file)
	assert.Contains(t, stdout, "collectives of one core in one step")
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(page), "<html")
}

// A vocabulary of 50,000 on a slice that is not present.
func TestAOTLargeUnchangedProgramIsCompiledForASlice(t *testing.T) {
	plugintest.Large(t)
	t.Setenv("TPUSTRATEGY_TPU_PLUGIN", plugintest.Libtpu(t))
	file := filepath.Join(t.TempDir(), "report.json")
	stdout, stderr, code := run(t, ":topology=v5e-16,logical=4,rules=megatron+fsdp,report="+file,
		"-vocabulary", "50000", "-width", "256", "-layers", "2", "-batch", "64", "-length", "128")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "is compiled for v5e:4x4 and not run")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var r report.Report
	require.NoError(t, json.Unmarshal(data, &r))
	assert.Equal(t, report.Fits, r.Memory.Verdict)
	assert.Equal(t, []int{4, 4}, []int{r.Replicas, r.LogicalDevices})
	assert.Greater(t, r.Parameters, int64(2*50000*256))
	// The variables and Adam's two moments of each, over all 16 devices but for what is small.
	assert.InDelta(t, 3*4*float64(r.Parameters)/16, float64(r.Memory.Arguments), 0.05*3*4*float64(r.Parameters)/16)
	t.Log(stderr)
}

// children are the processes that a process has started.
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

// gone reports whether a process has exited.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestAnInterruptedCompilationEndsAtOnce(t *testing.T) {
	cmd := program(t, ":topology=cpu:2", "-layers", "24") // the compiler takes a minute for it
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	var compilers []int
	require.Eventually(t, func() bool {
		compilers = children(t, cmd.Process.Pid)
		return len(compilers) > 0
	}, time.Minute, 5*time.Millisecond, "the compiler has no process")
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	begun := time.Now()
	_ = cmd.Wait()
	assert.Less(t, time.Since(begun), 20*time.Second)
	assert.False(t, cmd.ProcessState.Success())
	for _, pid := range compilers {
		assert.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, time.Millisecond)
	}
}
