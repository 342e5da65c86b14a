package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
)

// compiledFor saves the step as it is compiled for a strategy.
func compiledFor(t *testing.T, s *strategy.TPUStrategy) string {
	step, shapes, err := build(s)
	require.NoError(t, err)
	compiled, err := step.Compiled(t.Context(), shapes...)
	require.NoError(t, err)
	var data bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &data, compiled))
	path := filepath.Join(t.TempDir(), "x.step")
	require.NoError(t, os.WriteFile(path, data.Bytes(), 0o600))
	return path
}

// buildWith builds the program with a step inside, without a change to this directory.
func buildWith(t *testing.T, step string) string {
	here, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "steps",
		"test.step"): step}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	program := filepath.Join(dir, "onebinary")
	out, err := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"),
		"-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// starts runs the program and reads its result.
func starts(t *testing.T, cmd *exec.Cmd) (r Result) {
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	require.NoError(t, err, "%s", errors.String())
	require.NoError(t, json.Unmarshal(out, &r))
	return r
}

// The program runs its first step without compiling, without environment variables, without a home
// directory and without other programs, also in a directory with only the files of the image.
func TestItRunsFromItself(t *testing.T) {
	plugin := plugintest.Path(t, "cpu")
	sys := plugintest.System(t, 2)
	s, err := strategy.New(sys, options(1))
	require.NoError(t, err)
	program := buildWith(t, compiledFor(t, s))
	require.NoError(t, s.Close())

	cmd := exec.Command(program, "-devices", "2", "-steps", "30", "-run-plugin", plugin)
	cmd.Env, cmd.Dir = []string{}, t.TempDir()
	losses := starts(t, cmd)
	t.Logf("%+v", losses)
	assert.Equal(t, "test.step", losses.Step)
	assert.Zero(t, losses.Compiled)
	assert.Equal(t, 30, losses.Steps)
	assert.Less(t, losses.LastLoss, losses.FirstLoss/4)
	if info, err := os.Stat(program); assert.NoError(t, err) {
		t.Logf("%.1f MB", float64(info.Size())/1e6)
		assert.Less(t, info.Size(), int64(32<<20))
	}

	t.Run("as in the image", func(t *testing.T) {
		if os.Geteuid() != 0 || runtime.GOARCH != "amd64" {
			t.Skip("only root changes its root directory, and the image is for x86-64")
		}
		root := t.TempDir()
		dockerfile, err := os.ReadFile("Dockerfile")
		require.NoError(t, err)
		// The CPU plugin is linked to the C++ library, too; libtpu is not.
		libraries := append(regexp.MustCompile(`/lib(64)?/[^ \n]+\.so\.[0-9]+`).FindAllString(string(dockerfile), -1),
			"/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/x86_64-linux-gnu/libgcc_s.so.1")
		require.Len(t, libraries, 8)
		for _, path := range libraries {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Skipf("this machine keeps its libraries elsewhere: %v", err)
			}
			require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, path), data, 0o755))
		}
		// A container has /proc, from which the plugin's identity takes the processor that a step is for.
		processor, err := os.ReadFile("/proc/cpuinfo")
		require.NoError(t, err)
		require.NoError(t, os.Mkdir(filepath.Join(root, "proc"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "proc", "cpuinfo"), processor, 0o600))
		for from, to := range map[string]string{plugin: "plugin.so", program: "onebinary"} {
			require.NoError(t, os.Link(from, filepath.Join(root, to)))
		}
		cmd := exec.Command("/onebinary", "-devices", "2", "-steps", "30", "-run-plugin", "/plugin.so")
		cmd.Env, cmd.Dir = []string{}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		again := starts(t, cmd)
		assert.Zero(t, again.Compiled)
		assert.Equal(t, []float64{losses.FirstLoss, losses.LastLoss}, []float64{again.FirstLoss, again.LastLoss})
	})

	t.Run("on other devices", func(t *testing.T) {
		out, err := exec.Command(program, "-devices", "4", "-run-plugin", plugin).CombinedOutput()
		require.Error(t, err)
		assert.Contains(t, string(out), "embedded steps fits Topology(logical, mesh 2x1x1x2")
		assert.Contains(t, string(out), "test.step: stepfile:")
	})
}

// A step for a slice is compiled where no TPU is.
func TestAOTLargeStepForASliceGoesInside(t *testing.T) {
	plugintest.Large(t)
	if !plugintest.TPUChild(t) {
		return
	}
	for _, slice := range []string{"v5e:2x2", "v5p:2x2x1"} {
		s, err := strategy.NewAheadOfTime(plugintest.Slice(t, slice), options(1))
		require.NoError(t, err)
		data, err := os.ReadFile(compiledFor(t, s))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		assert.Greater(t, len(data), 1000)
	}
}

func TestWhatCannotBeRunIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-devices", "-1"}, {"-steps", "0"}, {"more"}, {"-nothing"}} {
		assert.Equal(t, 2, run(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}), "%v", args)
	}
}
