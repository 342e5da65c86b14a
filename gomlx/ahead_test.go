package gomlx_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
)

func TestAheadOfTimeStopsAtTheFirstStepWithTheReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	b, explained := fromConfig(t, "topology=cpu:8,logical=2,rules=megatron,report="+file, gomlx.Options{})
	assert.Equal(t, 8, b.NumDevices())
	assert.Nil(t, b.System())
	_, err := trainWords(b, 16, 3)
	var stopped *gomlx.AheadOfTimeError
	require.ErrorAs(t, err, &stopped)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.Equal(t, errkind.NotImplementedError, errkind.KindOf(err))
	assert.Equal(t, []string{"Trainer#1", "cpu:8", file, ""}, []string{stopped.Program, stopped.Topology, stopped.File,
		errText(stopped.Err)})
	require.Len(t, *explained, 1, "what runs before the step is on no device")
	for _, want := range []string{
		`program "Trainer#1" is compiled for cpu:8 and not run, as topology= requests; the report is in ` + file,
		"Trainer#1 on cpu:8 (8 x cpu): 4 replicas of 2 logical devices",
		"memory of one core", "temporaries", "collectives of one core in one step", "all-reduce", "-,logical",
		"operations of one core",
	} {
		assert.ErrorContains(t, err, want)
	}

	// The report is that of the same program as it runs.
	r := stopped.Explanation.Report
	var read report.Report
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &read))
	assert.Equal(t, *r, read)
	live, ran := fromConfig(t, "devices=8,logical=2,rules=megatron", gomlx.Options{})
	_, err = trainWords(live, 16, 1)
	require.NoError(t, err)
	run := (*ran)[len(*ran)-1].Report
	assert.Equal(t, run.Memory.Arguments, r.Memory.Arguments)
	assert.Equal(t, run.Memory.Aliased, r.Memory.Aliased)
	assert.Equal(t, run.Collectives, r.Collectives)
	assert.Equal(t, run.Cost.FLOPs, r.Cost.FLOPs)
	assert.Equal(t, run.Cost.ModelFLOPs, r.Cost.ModelFLOPs)
	const parameters = 64*32 + 32*64 + 64 + 64*32 + 32 + 32*64
	assert.EqualValues(t, parameters, r.Parameters)
}

// The backend that GoMLX creates by its name exits the process.
func TestAheadOfTimeEndsWithTheCodesOfTheCommand(t *testing.T) {
	for want, e := range map[int]*gomlx.AheadOfTimeError{
		0: {Explanation: &gomlx.Explanation{
			Report: &report.Report{}}},
		1: {Err: errors.New("no answer")},
		4: {Err: fmt.Errorf("compiling: %w", &pjrt.Error{Code: pjrt.ResourceExhausted})},
		5: {Err: fmt.Errorf("compiling: %w", &worker.Error{Reason: worker.Died})},
	} {
		assert.Equal(t, want, e.ExitCode())
	}
	full := &gomlx.AheadOfTimeError{Explanation: &gomlx.Explanation{
		Report: &report.Report{Memory: report.Memory{Verdict: report.TooLarge}}}}
	assert.Equal(t, 4, full.ExitCode())

	var told []*gomlx.AheadOfTimeError
	b, _ := fromConfig(t, "topology=cpu:2",
		gomlx.Options{OnAheadOfTime: func(e *gomlx.AheadOfTimeError) { told = append(told, e) }})
	for range 2 {
		_, err := trainWords(b, 16, 1)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	require.Len(t, told, 1)
	assert.NotNil(t, told[0].Explanation.Report)
}

// A program that the compiler rejects as too large also has a report, with its options and
// suggestions.
func TestAheadOfTimeOfAProgramThatDoesNotFitLeavesAReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "step.json")
	b, _ := fromConfig(t, "topology=cpu:8,logical=2,rules=megatron,report="+file, gomlx.Options{})
	gomlx.Refuse(b, &pjrt.Error{Code: pjrt.ResourceExhausted,
		Msg: "Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm. Exceeded hbm capacity by 4.25G."})
	_, err := trainWords(b, 16, 1)
	var stopped *gomlx.AheadOfTimeError
	require.ErrorAs(t, err, &stopped)
	assert.Equal(t, 4, stopped.ExitCode())
	assert.ErrorContains(t, err, "it cannot be compiled")
	assert.ErrorContains(t, err, "-,logical")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var read report.Report
	require.NoError(t, json.Unmarshal(data, &read))
	assert.True(t, read.Memory.Refused)
	assert.Equal(t, map[string]string{"rules": "megatron"}, read.Options)
	assert.NotEmpty(t, read.Suggestions)
	assert.NotEmpty(t, read.Tensors)
}

// A compiler for a slice takes minutes and reports no progress.
func TestAheadOfTimeSaysHowFarItIs(t *testing.T) {
	b, _ := fromConfig(t, "topology=cpu:8,logical=2", gomlx.Options{})
	var said bytes.Buffer
	gomlx.Slowly(b, &said, 200*time.Millisecond, 20*time.Millisecond)
	_, err := trainWords(b, 16, 1)
	require.Error(t, err)
	assert.Regexp(t, `^compiling Trainer#1 for cpu:8 \(4 x 2 devices\): 0s, \d+\.\d kB of program`, said.String())
	assert.Greater(t, strings.Count(said.String(), "\n"), 1)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Programs before the step run on this machine when their results are read.
func TestAheadOfTimeValuesAreThoseOfThisMachine(t *testing.T) {
	b, explained := fromConfig(t, "topology=cpu:4", gomlx.Options{})
	sum, err := graph.CallOnce(b, func(x *graph.Node) *graph.Node {
		return graph.Add(x, graph.IotaFull(x.Graph(),
			x.Shape()))
	}, []float32{1, 2, 3})
	require.NoError(t, err)
	assert.Equal(t, []float32{1, 3, 5}, sum.Value())

	first := func(b compute.Backend) any {
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(3))
		v := store.RootScope().VariableWithShape("w", shapes.Make(dtypes.Float32, 5, 3))
		require.NoError(t, store.InitializeVariables(b, nil))
		value, err := v.Value()
		require.NoError(t, err)
		// A chain of programs, one of whose inputs is donated.
		exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.MulScalar(x, 2) })
		require.NoError(t, err)
		for range 3 {
			out, err := exec.Call(value)
			require.NoError(t, err)
			value = out[0]
		}
		return value.Value()
	}
	one, _ := fromConfig(t, "", gomlx.Options{})
	assert.Equal(t, first(one), first(b))
	assert.Empty(t, *explained)

	require.NoError(t, b.Close())
	_, err = b.BufferFromFlatData(0, []float32{1}, shapes.Make(dtypes.Float32, 1))
	assert.ErrorIs(t, err, gomlx.ErrFinalized)
}

func TestAheadOfTimeRefusesWhatNeedsTheDevices(t *testing.T) {
	b, _ := fromConfig(t, "topology=cpu:4", gomlx.Options{})
	buf, err := b.BufferFromFlatData(0, []float32{1}, shapes.Make(dtypes.Float32, 1))
	require.NoError(t, err)
	_, err = buf.CopyToDevice(1)
	assert.ErrorContains(t, err, "the backend compiles ahead of time for cpu:4, which is not here")
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = b.BufferFromFlatData(4, []float32{1}, shapes.Make(dtypes.Float32, 1))
	assert.ErrorContains(t, err, "it is not in [0, 4)")
	for config, want := range map[string]string{
		"topology=cpu:4,logical=3":                 "3 logical devices do not divide 4 devices",
		"topology=cpu:4,report=/nowhere/at/all.js": "/nowhere/at/all.js",
	} {
		_, err := gomlx.NewFromConfig(t.Context(), config, gomlx.Options{})
		require.ErrorIs(t, err, gomlx.ErrConfig)
		assert.ErrorContains(t, err, want)
	}
}

// libtpu compiles the step for a slice that is not present.
func TestAheadOfTimeForATPU(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	b, err := gomlx.NewFromConfig(t.Context(), "topology=v5e-16,logical=2,rules=megatron+fsdp,precision=highest",
		gomlx.Options{})
	require.NoError(t, err)
	_, err = trainWords(b, 64, 1)
	var stopped *gomlx.AheadOfTimeError
	require.ErrorAs(t, err, &stopped)
	r := stopped.Explanation.Report
	require.NotNil(t, r, "%v", err)
	assert.Equal(t, []any{"v5e:4x4", 16, 8, 2}, []any{r.Target.Name, r.Target.Devices, r.Replicas, r.LogicalDevices})
	assert.Equal(t, report.Fits, r.Memory.Verdict)
	assert.NotEmpty(t, r.Collectives)
	assert.Positive(t, r.Cost.RooflineSeconds)
	require.NoError(t, b.Close())
}
