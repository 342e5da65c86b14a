package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/examples/gpt/decoder"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/report"
)

// childrenTime is the processor time of the processes that this one has waited for.
func childrenTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// compiledGPT compiles a preset of examples/gpt for a slice, with all that makes it small, and
// checks the figures by their names.
func compiledGPT(t *testing.T, preset, topology, logicalDevices string) {
	t.Helper()
	plugintest.Large(t)
	before := childrenTime(t)
	executable, err := os.Executable()
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr, stdin: strings.NewReader(""), getenv: os.Getenv, environ: os.Environ(), executable: executable, argv0: "tpustrategy"}
	code := a.run(t.Context(), []string{"compile", "--example", "gpt", "--preset", preset, "--topology", topology, "--logical", logicalDevices,
		"--remat", "full", "--shard-state", "parameters", "--precision", "bf16", "--json", "--plugin", plugintest.Libtpu(t)})
	require.Zero(t, code, stderr.String())
	used := childrenTime(t) - before
	var all []struct {
		Parameters     int64   `json:"parameters"`
		TextBytes      int     `json:"text_bytes"`
		LowerSeconds   float64 `json:"lower_seconds"`
		CompileSeconds float64 `json:"compile_seconds"`
		Memory         struct {
			Arguments, Temporaries, Needs, Limit int64
			Verdict                              report.Verdict
		} `json:"memory"`
		Collectives []struct {
			Axis, Kind, DType string
			Count             int
			Bytes             int64
		} `json:"collectives"`
		FLOPs float64 `json:"flops"`
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &all))
	require.Len(t, all, 1)
	one := all[0]
	c, err := decoder.Preset(preset)
	require.NoError(t, err)
	assert.EqualValues(t, c.Parameters(), one.Parameters)
	assert.Equal(t, report.Fits, one.Memory.Verdict)
	assert.Less(t, one.TextBytes, 400_000, "the layers are a loop of the text")
	assert.Positive(t, one.LowerSeconds)
	assert.Greater(t, one.FLOPs, 1e11)
	assert.Positive(t, one.Memory.Needs)
	kinds := map[string]int64{}
	for _, collective := range one.Collectives {
		kinds[collective.Axis+" "+collective.Kind+" "+strings.ToLower(collective.DType)] += collective.Bytes
		assert.Positive(t, collective.Count)
	}
	assert.Positive(t, kinds["logical all-reduce bf16"], "%v", kinds)
	assert.Positive(t, kinds["replica all-gather bf16"], "%v", kinds)
	t.Logf("%s for %s as P = %s: %d parameters, %d bytes of text, %.2f s to lower, %.1f s to compile, %.1f s of the processor; needs %s of %s; %.3g operations of a core; %v",
		preset, topology, logicalDevices, one.Parameters, one.TextBytes, one.LowerSeconds, one.CompileSeconds, used.Seconds(),
		report.Bytes(one.Memory.Needs), report.Bytes(one.Memory.Limit), one.FLOPs, kinds)
}

// A preset of 125m parameters takes the compiler as long as this one, whose program has its text.
func TestAOTLargeGPT1b3(t *testing.T) { compiledGPT(t, "1b3", "v5e:4x4", "4") }

func TestAOTLargeGPTLlama8B(t *testing.T) { compiledGPT(t, "llama3-8b", "v5p-128", "4") }
