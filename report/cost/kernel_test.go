package cost

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// Values between the operations of a kernel cost neither time nor memory. Arguments, results and
// values with other readers do.
func TestAKernelKeepsWhatItsOperationsHandEachOther(t *testing.T) {
	named := func(n int) []byte { return message(nil, 7, message(nil, 2, fmt.Appendf(nil, "op_s%d", n))) }
	const n, size = 4096, 128
	attention := func(read uint64) []byte {
		return number(computation(1,
			op(10, "parameter", floats(n, size), nil),
			op(11, "dot", floats(n, n), []uint64{10, 10}, dot, named(0)),
			op(12, "exponential", floats(n, n), []uint64{11}, named(0)),
			op(13, "bitcast", floats(n, n), []uint64{12}),
			op(14, "dot", floats(n, size), []uint64{13, 10}, dot, named(0)),
			op(15, "negate", floats(n, size), []uint64{read}, named(1)),
		), 6, 15)
	}
	step := &spmd.Module{Origins: []*ir.Origin{{Call: "generate.Cache.Attend"}, {Call: "graph.Neg"}}}
	predict := func(read uint64, kernel string) *Estimate {
		p, err := hlo.Parse(program(1, attention(read)), step, kernel)
		require.NoError(t, err)
		e, err := Predict(p, "v5e:1x1")
		require.NoError(t, err)
		return e
	}
	m := newSlice("v5e:1x1")
	inside := m.memorySeconds(4 * n * n) // one tensor of scores, read or written once
	product := m.memorySeconds(4 * 2 * n * size)
	alone := predicted(t, program(1, attention(14)), "v5e:1x1")
	assert.InEpsilon(t, alone.Products, 2*(inside+product), 0.01, "each product waits for the scores in the main memory")
	assert.InEpsilon(t, 2*inside+product, alone.Memory, 0.01)

	e := predict(14, "generate.Cache.Attend")
	p := e.Prediction
	assert.InEpsilon(t, product, p.Memory, 0.01, "the negation alone")
	assert.InEpsilon(t, 2*2*n*n*size/(m.value(peakRate)*m.value(emittedShare)), p.Products, 0.01, "the arithmetic alone")
	assert.Less(t, e.PeakBytes, int64(4*4*n*size+1))

	p = predict(13, "generate.Cache.Attend").Prediction
	assert.Greater(t, p.Memory, inside, "what another operation reads is written")
	assert.Equal(t, alone.Seconds, predict(14, "graph.Exp").Prediction.Seconds, "a kernel that the program does not call")
}
