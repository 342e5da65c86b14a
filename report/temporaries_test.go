package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

func TestTheLargestTemporariesAreThoseBetweenTheOperations(t *testing.T) {
	named := func(name string) []byte { return message(nil, 7, message(nil, 2, []byte(name))) }
	fast := message(floats(100, 100), 5, number(nil, 8, 1))
	p := program(1,
		number(computation(2, op(20, "parameter", floats(64, 64), nil), op(21, "add", floats(64, 64), []uint64{20, 20}),
			op(22, "multiply", floats(64, 64), []uint64{21, 21})), 6, 22), // a carried value is no temporary
		computation(3, op(30, "add", floats(4096, 64), nil), op(31, "add", floats(1), nil)),
		// in a fusion: no memory
		number(computation(1,
			op(10, "parameter", floats(4096, 4096), nil),
			op(11, "fusion", floats(64, 64), []uint64{10}, packed(nil, 38, 3), named("/up/dot")),
			op(12, "fusion", floats(64, 64), []uint64{10}, named("/up/dot")),
			op(13, "while", floats(64, 64), []uint64{12}, packed(nil, 38, 2)),
			op(14, "bitcast", floats(4096), []uint64{13}),
			op(15, "copy", fast, []uint64{10}),
			op(16, "copy", floats(32, 32), []uint64{10}),
			op(17, "add", floats(8), []uint64{16, 16}), // too small
			op(18, "add", floats(512, 512), []uint64{10}),
			op(19, "tuple", nil, []uint64{18}), // its operand is a result of the step
		), 6, 19),
	)
	m, err := hlo.Parse(p, nil)
	require.NoError(t, err)
	assert.Equal(t, []memory.Temporary{
		{Operation: "fusion", Source: "/up/dot", DType: "f32", Shape: []int{64, 64}, Bytes: 16384, Count: 2},
		{Operation: "add", DType: "f32", Shape: []int{64, 64}, Bytes: 16384, Count: 1},
		{Operation: "copy", DType: "f32", Shape: []int{32, 32}, Bytes: 4096, Count: 1},
	}, temporaries(m))
}
