package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hlotest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/sharding"
)

var (
	number, message, packed          = hlotest.Number, hlotest.Message, hlotest.Packed
	floats, op, computation, program = hlotest.Floats, hlotest.Instruction, hlotest.Computation, hlotest.Program
	grouped                          = hlotest.Groups
)

func find(t *testing.T, p pjrt.Program, replicas, perReplica int) []Collective {
	t.Helper()
	m, err := hlo.Parse(p, nil)
	require.NoError(t, err)
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: replicas}, sharding.Axis{Name: "logical",
		Size: perReplica})
	require.NoError(t, err)
	return countCollectives(m, mesh).collectives()
}

func TestCollectivesAreNamedByTheirAxes(t *testing.T) {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "model", Size: 2},
		sharding.Axis{Name: "sequence", Size: 2})
	require.NoError(t, err)
	c := &collectiveCounter{mesh: mesh}
	for _, axes := range [][]string{{"replica"}, {"model"}, {"sequence"}, {"replica", "sequence"}, {"model", "sequence"},
		{"replica", "model", "sequence"}} {
		groups, err := mesh.Groups(axes...)
		require.NoError(t, err)
		assert.Equal(t, strings.Join(axes, "+"), c.axis(groups))
	}
	assert.Equal(t, "", c.axis([][]int{{0}, {7}}))
	assert.Equal(t, "replica", c.axis([][]int{{0, 8}}), "a partition that is not there")
	assert.Equal(t, "model+sequence", c.axis([][]int{{1, 2}, {2, 3}}))
}

func TestCollectivesAreCountedWithTheirAxisAndBytes(t *testing.T) {
	across, within := grouped([]uint64{0, 2}, []uint64{1, 3}), grouped([]uint64{0, 1}, []uint64{2, 3})
	pairs := message(message(nil, 52, number(number(nil, 1, 0), 2, 1)), 52, number(number(nil, 1, 1), 2, 0))
	p := program(1, computation(1,
		op(10, "parameter", floats(8, 4), nil),
		op(11, "all-reduce", floats(8, 4), []uint64{10}, across),
		op(12, "all-reduce-start", floats(8, 4), []uint64{10, 11}, across),
		op(13, "all-reduce-done", floats(8, 4), []uint64{12}),
		op(14, "all-gather", floats(16, 4), []uint64{10}, within),
		op(15, "reduce-scatter", floats(4, 4), []uint64{10}, within),
		op(16, "all-to-all", floats(8, 4), []uint64{10}),
		op(17, "collective-permute", floats(8, 4), []uint64{10}, pairs),
		op(18, "all-reduce", floats(8, 4), []uint64{10}, grouped([]uint64{0}, []uint64{1}, []uint64{2}, []uint64{3})),
		op(19, "send", floats(8, 4), []uint64{10}),
		op(20, "send", floats(8, 4), []uint64{10}, number(nil, 47, 1)),
		op(21, "add", floats(8, 4), []uint64{10, 10}),
		op(22, "send", floats(8, 4), []uint64{10}, number(nil, 47, 1),
			message(nil, 68, []byte("handler xla_megascale_runtime"))),
	))
	assert.ElementsMatch(t, []Collective{
		{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 2, Bytes: 384, Moved: 384},
		{Kind: "all-gather", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 128, Moved: 128},
		{Kind: "reduce-scatter", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 128, Moved: 64},
		{Kind: "all-to-all", Axis: "replica+logical", GroupSize: 4, Count: 1, Bytes: 128, Moved: 96},
		{Kind: "collective-permute", Axis: "logical", GroupSize: 2, Count: 1, Bytes: 128, Moved: 128},
		{Kind: "send", GroupSize: 2, Count: 1, Bytes: 128, Moved: 128},
		{Kind: "send", Axis: "slices", GroupSize: 2, Count: 1, Bytes: 128, Moved: 128},
	}, find(t, p, 2, 2))
}

func TestCollectivesInLoopsAndCallsAreCountedAsOftenAsTheyRun(t *testing.T) {
	all := grouped([]uint64{0, 1})
	known := message(nil, 43, []byte(`{"known_trip_count":{"n":"10"},"x":1}`))
	body := func(id uint64) []byte {
		return computation(id, op(100*id, "parameter", floats(4), nil), op(100*id+1, "all-reduce", floats(4),
			[]uint64{100 * id}, all))
	}
	calls := func(ids ...uint64) []byte { return packed(nil, 38, ids...) }
	p := program(1, body(2), body(3), body(4), computation(1,
		op(10, "parameter", floats(4), nil),
		op(11, "while", floats(4), []uint64{10}, calls(2), known),
		op(12, "async-start", floats(4), []uint64{10}, calls(3)),
		op(13, "async-done", floats(4), []uint64{12}, calls(3)),
		op(14, "fusion", floats(4), []uint64{10}, calls(3)),
	))
	assert.Equal(t, []Collective{{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 12, Bytes: 192, Moved: 192}},
		find(t, p, 2, 1))
	p = program(1, body(2), computation(1, op(10, "parameter", floats(4), nil), op(11, "while", floats(4), []uint64{10},
		calls(2))))
	assert.Equal(t, []Collective{{Kind: "all-reduce", Axis: "replica", GroupSize: 2, Count: 1, Bytes: 16, Moved: 16,
		InLoop: true}}, find(t, p, 2, 1))
}

func TestCollectivesAreToldApartByDType(t *testing.T) {
	all := grouped([]uint64{0, 1}, []uint64{2, 3})
	half := packed(number(nil, 2, 16), 3, 8, 4)
	p := program(1, computation(1,
		op(10, "parameter", floats(8, 4), nil),
		op(11, "parameter", half, nil),
		op(12, "all-reduce", half, []uint64{11}, all),
		op(13, "all-reduce", floats(8, 4), []uint64{10, 11}, all),
		op(14, "all-gather", half, []uint64{11}, all),
	))
	r := &Report{Step: "s", Replicas: 2, LogicalDevices: 2, Cost: Cost{FLOPs: -1, BytesAccessed: -1}}
	m, err := hlo.Parse(p, nil)
	require.NoError(t, err)
	mesh, err := r.meshOf(nil)
	require.NoError(t, err)
	r.addCollectives(countCollectives(m, mesh), nil)
	assert.Equal(t, []CollectiveDType{
		{"all-reduce", "logical", 2, "bf16", 128, 2},
		{"all-reduce", "logical", 2, "f32", 128, 1},
		{"all-gather", "logical", 2, "bf16", 64, 1},
	}, r.CollectiveDTypes)
	var text, page bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	assert.Contains(t, text.String(),
		"all-reduce  logical  2      2      256 B     256 B           bf16 128 B, f32 128 B\n")
	require.NoError(t, r.WriteHTML(&page))
	assert.Contains(t, page.String(), ">bf16 128 B, f32 128 B</td>")
}
