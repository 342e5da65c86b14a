package hlo

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

func integer(id, n uint64) []byte {
	return op(id, "constant", scalar, nil, message(nil, 8, packed(nil, 4, n)))
}

// loop returns a program with a loop over a counter that starts at 3 and is updated by step in the
// body, next to an all-reduce of 16 bytes.
func loop(condition, step [][]byte, init ...[]byte) pjrt.Program {
	state := message(message(nil, 4, scalar), 4, floats(4))
	element := func(id, of, k uint64, shape []byte) []byte {
		return op(id, "get-tuple-element", shape, []uint64{of}, number(nil, 13, k))
	}
	body := append([][]byte{op(200, "parameter", state, nil), element(201, 200, 0, scalar),
		element(202, 200, 1, floats(4)),
		op(203, "all-reduce", floats(4), []uint64{202}, grouped([]uint64{0, 1}))}, step...)
	body = append(body, op(209, "tuple", state, []uint64{208, 203}))
	cond := append([][]byte{op(300, "parameter", state, nil), element(301, 300, 0, scalar)}, condition...)
	if init == nil {
		init = [][]byte{integer(101, 3)}
	}
	main := append(init, op(102, "parameter", floats(4), nil), op(103, "tuple", state, []uint64{101, 102}),
		op(104, "while", state, []uint64{103}, packed(nil, 38, 2, 3)))
	return program(1, number(computation(1, main...), 6, 104), number(computation(2, body...), 6, 209),
		number(computation(3, cond...), 6, 309),
		number(computation(4, op(400, "parameter", scalar, nil), integer(401, 2), op(402, "add", scalar, []uint64{400, 401})),
			6, 402))
}

func TestRoundsAreReadFromALoopsCondition(t *testing.T) {
	compare := func(direction string, left, right uint64) []byte {
		return op(309, "compare", number(nil, 2, 1), []uint64{left, right}, message(nil, 63, []byte(direction)))
	}
	minus := ^uint64(0) // -1
	one := [][]byte{integer(204, 1), op(208, "add", scalar, []uint64{201, 204})}
	for name, c := range map[string]struct {
		p    pjrt.Program
		want int // -1 means unknown
	}{
		"less than":       {loop([][]byte{integer(302, 27), compare("LT", 301, 302)}, one), 24},
		"at most":         {loop([][]byte{integer(302, 27), compare("LE", 301, 302)}, one), 25},
		"the limit first": {loop([][]byte{integer(302, 27), compare("GT", 302, 301)}, one), 24},
		"not equal":       {loop([][]byte{integer(302, 27), compare("NE", 301, 302)}, one), 24},
		"an offset": {loop([][]byte{integer(302, 27), integer(303, 2), op(304, "add", scalar, []uint64{301, 303}),
			compare("LT", 304, 302)}, one), 22},
		"downwards": {loop([][]byte{integer(302, minus-6), compare("GT", 301, 302)}, [][]byte{integer(204, 5),
			op(208, "subtract", scalar, []uint64{201, 204})}), 2},
		"by twos, in a fusion": {loop([][]byte{integer(302, 10), compare("LT", 301, 302)},
			[][]byte{op(208, "fusion", scalar, []uint64{201}, packed(nil, 38, 4))}), 4},
		"a copied counter": {loop([][]byte{integer(302, 27), compare("LT", 301, 302)},
			[][]byte{op(205, "copy", scalar, []uint64{201}), integer(204, 1), op(208, "add", scalar, []uint64{205, 204})}), 24},
		"no round":         {loop([][]byte{integer(302, 3), compare("LT", 301, 302)}, one), 0},
		"an unknown limit": {loop([][]byte{op(302, "custom-call", scalar, nil), compare("LT", 301, 302)}, one), -1},
		"an unknown start": {loop([][]byte{integer(302, 27), compare("LT", 301, 302)}, one, op(101, "parameter", scalar,
			nil, number(nil, 9, 1))), -1},
		"a counter that stays": {loop([][]byte{integer(302, 27), compare("LT", 301, 302)}, [][]byte{integer(204, 0),
			op(208, "add", scalar, []uint64{201, 204})}), -1},
		"the wrong way": {loop([][]byte{integer(302, 27), compare("LT", 301, 302)}, [][]byte{integer(204, minus),
			op(208, "add", scalar, []uint64{201, 204})}), -1},
		"past it": {loop([][]byte{integer(302, 4), compare("NE", 301, 302)}, [][]byte{integer(204, 2),
			op(208, "add", scalar, []uint64{201, 204})}), -1},
		"another comparison": {loop([][]byte{integer(302, 27), compare("EQ", 301, 302)}, one), -1},
		"nothing":            {loop(nil, nil), -1},
	} {
		p, err := Parse(c.p, nil)
		require.NoError(t, err, name)
		at := slices.IndexFunc(p.Entry.Instructions, func(i *Instruction) bool { return i.Opcode == "while" })
		loop := p.Entry.Instructions[at]
		assert.Equal(t, c.want >= 0, loop.HasIterations, name)
		assert.Equal(t, max(c.want, 0), loop.Iterations, name)
	}
}
