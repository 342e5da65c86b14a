package cost

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/report/hlo"
)

func TestWorkCountsRoundsPartsAndTheMainMemory(t *testing.T) {
	// Ten iterations of a product of 2x3 and 3x4. The right operand is sliced from a stack of 8 in
	// a fusion, and the left operand is in another memory.
	near := message(floats(2, 3), 5, number(nil, 8, 1))
	body := number(computation(2,
		op(20, "parameter", near, nil), op(21, "parameter", floats(8, 3, 4), nil, number(nil, 9, 1)),
		op(22, "fusion", floats(2, 4), []uint64{20, 21}, packed(nil, 38, 3)),
		op(23, "all-reduce", floats(2, 4), []uint64{22}, grouped([]uint64{0, 1})),
	), 6, 22)
	fused := number(computation(3,
		op(30, "parameter", near, nil), op(31, "parameter", floats(8, 3, 4), nil, number(nil, 9, 1)),
		op(32, "dynamic-slice", floats(1, 3, 4), []uint64{31}), op(33, "bitcast", floats(3, 4), []uint64{32}),
		op(34, "dot", floats(2, 4), []uint64{30, 33}, message(nil, 30, packed(nil, 1, 1))),
	), 6, 34)
	known := message(nil, 43, []byte(`{"known_trip_count":{"n":"10"}}`))
	m, err := hlo.Parse(program(1, body, fused, computation(1, op(10, "parameter", floats(1), nil),
		op(11, "while", floats(1), []uint64{10}, packed(nil, 38, 2), known))), nil)
	require.NoError(t, err)
	e := Simulate(m, "cpu:1", 100, 10, nil)
	assert.Equal(t, 10*(2.0*2*3*4+8), e.FLOPs, "products and the sums of the all-reduce")
	assert.Equal(t, 10*(24+48+32+64.0), e.Bytes)
	assert.Equal(t, 10*(48+32.0), e.RooflineBytes, "the main memory, without the all-reduce")
	assert.InDelta(t, 10*(48+32)/10.0, e.RooflineSeconds, 1e-9, "the fusion is bound by its traffic with the main memory")
	assert.Equal(t, 10, e.Untimed)
	assert.Zero(t, e.UnknownLoops)
	assert.Equal(t, 9*56.0, e.LoopFLOPs)
}
