package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/lm/decoder"
	"github.com/tpustrategy/tpustrategy/report"
)

// childrenTime returns the processor time of the terminated child processes.
func childrenTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// compileGPT runs the compile command for examples/gpt with more flags, and returns its JSON output.
func compileGPT(t *testing.T, flags ...string) []byte {
	t.Helper()
	plugintest.Large(t)
	executable, err := os.Executable()
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr, stdin: strings.NewReader(""), getenv: os.Getenv, environ: os.Environ(),
		executable: executable, argv0: "tpustrategy"}
	code := a.run(t.Context(), append([]string{"compile", "--example", "gpt", "--json", "--plugin", plugintest.Libtpu(t)},
		flags...))
	require.Zero(t, code, stderr.String())
	return stdout.Bytes()
}

// compiledGPT compiles a preset of examples/gpt for a slice, with all options that reduce its
// memory, and checks the figures by their names.
func compiledGPT(t *testing.T, preset, topology, logicalDevices string) {
	t.Helper()
	before := childrenTime(t)
	out := compileGPT(t, "--preset", preset, "--topology", topology, "--logical", logicalDevices,
		"--remat", "full", "--shard-state", "parameters", "--precision", "bf16")
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
	require.NoError(t, json.Unmarshal(out, &all))
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
	t.Logf("%s for %s as P = %s: %d parameters, %d bytes of text, %.2f s to lower, %.1f s to compile, %.1f s of the "+
		"processor; needs %s of %s; %.3g operations of a core; %v",
		preset, topology, logicalDevices, one.Parameters, one.TextBytes, one.LowerSeconds, one.CompileSeconds, used.Seconds(),
		units.Bytes(one.Memory.Needs), units.Bytes(one.Memory.Limit), one.FLOPs, kinds)
}

// A preset of 125m parameters takes the compiler as long as this one, whose program has its text.
func TestAOTLargeGPT1b3(t *testing.T) { compiledGPT(t, "1b3", "v5e:4x4", "4") }

func TestAOTLargeGPTLlama8B(t *testing.T) { compiledGPT(t, "llama3-8b", "v5p-128", "4") }

// reportOfGPT compiles examples/gpt and checks that the figures of the report agree with each other.
func reportOfGPT(t *testing.T, flags ...string) *report.Report {
	t.Helper()
	var all []struct{ Report *report.Report }
	require.NoError(t, json.Unmarshal(compileGPT(t, flags...), &all))
	require.Len(t, all, 1)
	r := all[0].Report
	assert.GreaterOrEqual(t, r.Predicted.Seconds, r.Cost.FloorSeconds, "the prediction is not below the floor")
	assert.InEpsilon(t, float64(r.Schedule.Peak), float64(r.Memory.Peak), 0.01)
	for _, l := range r.Lines {
		if l.File != "" {
			assert.Regexp(t, `lm/decoder/\w+\.go$`, l.File, "a line of the user's code")
		}
	}
	norms := 0.0
	for _, l := range r.Schedule.Layers {
		if strings.Contains(l.Layer, "rms_norm") {
			norms += l.Seconds
		}
	}
	assert.Less(t, norms, 0.3*r.Predicted.Seconds, "%v", r.Schedule.Layers)
	return r
}

// A small step in half precision, whose values are mostly in the fast memory.
func TestAOTLargeGPTTinyReport(t *testing.T) {
	r := reportOfGPT(t, "--preset", "tiny", "--topology", "v5e:2x4", "--logical", "2", "--precision", "bf16")
	assert.Equal(t, r.Schedule.Peak, r.Memory.Peak)
	for _, layer := range []string{"layers/query/dense", "layers/up/dense", "head/dense"} {
		assert.True(t, slices.ContainsFunc(r.Schedule.Layers, func(l report.LayerTime) bool {
			return l.Layer == layer &&
				l.Kind == "products" && l.Seconds > 0
		}), layer)
	}
}

// A large step, which rematerializes its layers.
func TestAOTLargeGPTLlama8BReport(t *testing.T) {
	reportOfGPT(t, "--preset", "llama3-8b", "--topology", "v5p-512", "--batch", "512", "--remat", "full", "--shard-state",
		"parameters", "--precision", "bf16")
}
