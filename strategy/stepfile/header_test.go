package stepfile

import (
	"bytes"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// everyKind returns a step that uses every field of a file.
func everyKind(t *testing.T) *savedstep.Step {
	t.Helper()
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "logical", Size: 2})
	require.NoError(t, err)
	spec := func(text string) sharding.Spec {
		_, s, err := sharding.ParseShardy(text)
		require.NoError(t, err)
		return s
	}
	perReplica, split, whole := spec(`#sdy.sharding<@mesh, [{"replica"}, {}]>`),
		spec(`#sdy.sharding<@mesh, [{}, {"logical"}]>`), spec(`#sdy.sharding<@mesh, [{}]>`)
	replica, err := logical.NewMesh(2)
	require.NoError(t, err)
	return &savedstep.Step{
		Name: "every_kind",
		Target: savedstep.Target{Plugin: "a plugin", Devices: "a kind", Topology: "a slice", Mesh: tpu.Coordinates{4, 1, 1,
			1},
			IDs: [][]int{{0, 1}, {2, 3}}, Coordinates: [][]tpu.Coordinates{{{0}, {1}}, {{2}, {3}}}},
		Module: &spmd.Module{Name: "every_kind", Text: []byte("text"), Mesh: mesh, LogicalMesh: replica, Replicas: 1,
			Partitions: 4,
			Arguments: []spmd.ShardedTensor{
				{Tensor: spmd.Tensor{Name: "x", PerReplica: true}, DType: dtypes.Float32, LocalDims: []int{3, 8},
					GlobalDims: []int{6, 8}, ShardDims: []int{3, 8}, Spec: perReplica},
				{Tensor: spmd.Tensor{Name: "/w", Annotation: logical.SplitInto(1, 2), Donated: true, Result: 1},
					DType: dtypes.BFloat16, LocalDims: []int{3, 8}, GlobalDims: []int{3, 8}, ShardDims: []int{3, 4}, Spec: split},
				{Tensor: spmd.Tensor{Name: "metric", PerReplica: true, Annotation: logical.AssignTo(1)}, DType: dtypes.Int64,
					LocalDims:  []int{4},
					GlobalDims: []int{8}, ShardDims: []int{4}, Spec: spec(`#sdy.sharding<@mesh, [{"replica"}]>`)},
				{Tensor: spmd.Tensor{Name: savedstep.GuardPath("every_kind"), Annotation: logical.Replicated()},
					DType: dtypes.Int64, LocalDims: []int{4}, GlobalDims: []int{4}, ShardDims: []int{4}, Spec: whole},
			},
			Results: []spmd.ShardedTensor{
				{Tensor: spmd.Tensor{Name: "result_0"}, DType: dtypes.Float32, LocalDims: []int{3}, GlobalDims: []int{3},
					ShardDims: []int{3}, Spec: whole},
				{Tensor: spmd.Tensor{Name: "/w", Annotation: logical.SplitInto(1, 2)}, DType: dtypes.BFloat16,
					LocalDims: []int{3, 8}, GlobalDims: []int{3, 8}, ShardDims: []int{3, 4}, Spec: split},
			}},
		Code: []byte("code"),
		Arguments: []savedstep.Argument{
			{Ragged: true, Sizes: []int{0, -1}}, {Variable: true},
			{Variable: true, Distributed: &savedstep.Variable{Synchronization: int(strategy.OnRead),
				Aggregation: int(strategy.AggregateMean), LocalWrites: true}},
			{Variable: true, ZeroIfMissing: true},
		},
		Updates:       []int{1},
		PaddedResults: [][]ragged.Dim{{{Size: 0, Factor: 1}}},
		Annotations:   []logical.Annotation{logical.SplitInto(1, 2), logical.SplitOverAxes("", "logical")},

		SplitBatch: true, Padding: int(strategy.MaskPadding), Training: true, Mirrored: true,
		Guard: savedstep.Guard{Mode: 1, Gradients: []string{"/w"}},
	}
}

func TestAStepIsTheSameAfterItsFile(t *testing.T) {
	want := everyKind(t)
	data, err := encode(newHeader(want), want.Module.Text, want.Code)
	require.NoError(t, err)
	h, text, code, err := decode(bytes.NewReader(data), "")
	require.NoError(t, err)
	got, err := h.decodeStep(text, code)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	again, err := encode(newHeader(got), got.Module.Text, got.Code)
	require.NoError(t, err)
	assert.Equal(t, data, again)
}

func TestOlderFilesSayTheirPaddingInTwoFields(t *testing.T) {
	for want, h := range map[strategy.Padding][]header{
		strategy.NoPadding: {{}}, strategy.MaskPadding: {{PadRagged: true}}, strategy.KeepPadding: {{Keep: true},
			{PadRagged: true, Keep: true}},
	} {
		for _, h := range h {
			step, err := h.decodeStep(nil, nil)
			require.NoError(t, err)
			assert.Equal(t, int(want), step.Padding)
		}
	}
}

func TestOnlyTheCountingVariableIsMadeAnew(t *testing.T) {
	for name, change := range map[string]func(h *header){
		"steps that are always taken": func(h *header) { h.NonFinite = 0 },
		"another name":                func(h *header) { h.Arguments[3].Name = "/non_finite/other" },
		"another dtype":               func(h *header) { h.Arguments[3].DType = "Float64" },
		"as many elements as fit a TPU": func(h *header) {
			a := &h.Arguments[3]
			a.Local, a.Global, a.Shard = []int{1 << 40}, []int{1 << 40}, []int{1 << 40}
		},
	} {
		h := newHeader(everyKind(t))
		change(&h)
		step, err := h.decodeStep(nil, nil)
		require.NoError(t, err, name)
		assert.False(t, step.Arguments[3].ZeroIfMissing, name)
	}
}

func TestAFileFitsOneTarget(t *testing.T) {
	h := newHeader(everyKind(t))
	here := everyKind(t).Target
	require.NoError(t, h.checkTarget(here))
	for want, change := range map[Reason]func(*savedstep.Target){
		Plugin:     func(t *savedstep.Target) { t.Plugin = "another" },
		Devices:    func(t *savedstep.Target) { t.Devices = "another" },
		Topology:   func(t *savedstep.Target) { t.Mesh[1] = 2 },
		Assignment: func(t *savedstep.Target) { t.IDs = [][]int{{0, 2}, {1, 3}} },
	} {
		other := everyKind(t).Target
		change(&other)
		var refused *Error
		require.ErrorAs(t, h.checkTarget(other), &refused)
		assert.Equal(t, want, refused.Reason)
	}
	here.Coordinates = [][]tpu.Coordinates{{{0}, {1}}, {{2}, {9}}}
	assert.ErrorContains(t, h.checkTarget(here), "at other coordinates")
}
